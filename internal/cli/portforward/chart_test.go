package portforward

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// The chart's own Services, pods and ServiceAccounts are what is looked for, whatever the release is called.
func TestServicesOf_FindTheChartsOwn(t *testing.T) {
	wanted, err := labels.Parse(selector)
	require.NoError(t, err)
	for _, release := range []helmchart.Release{{}, {Name: "fleet", Namespace: "team-b"}} {
		release.Values = map[string]any{"github": map[string]any{"appID": 1.0}}
		manifests, err := helmchart.Render(release)
		require.NoError(t, err)
		objects, err := helmchart.Objects(manifests)
		require.NoError(t, err)
		var services []corev1.Service
		var pods []corev1.Pod
		accounts := map[string]bool{}
		for _, object := range objects {
			switch object.GetKind() {
			case "Service":
				if wanted.Matches(labels.Set(object.GetLabels())) {
					var service corev1.Service
					require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service))
					services = append(services, service)
				}
			case "Deployment":
				var deployment appsv1.Deployment
				require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment))
				pods = append(pods, corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec})
			case "ServiceAccount":
				accounts[object.GetNamespace()+"/"+object.GetName()] = true
			}
		}
		found := servicesOf(services)
		require.Len(t, found, 1, "among %d Services of the server", len(services))
		namespace, account := found[0].ServiceAccount()
		require.Contains(t, accounts, namespace+"/"+account)
		var ports []int32
		for _, pod := range pods {
			if labels.SelectorFromSet(found[0].selector).Matches(labels.Set(pod.Labels)) {
				port, has := portOf(pod, found[0].target)
				require.True(t, has)
				ports = append(ports, port)
			}
		}
		require.Equal(t, []int32{8082}, ports)
	}
}
