package onebox

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// The server's stand-in for network policies has the labels of the pods of the chart's Deployment.
func TestGate_NET2_TheServerIsWhatTheChartInstalls(t *testing.T) {
	manifests, err := helmchart.Render(helmchart.Release{Namespace: SystemNamespace, Values: map[string]any{"github": map[string]any{"appID": 1.0}}})
	require.NoError(t, err)
	objects, err := helmchart.Objects(helmchart.Under(manifests, "templates/server/deployment.yaml"))
	require.NoError(t, err)
	var deployment appsv1.Deployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, &deployment))
	pod := deployment.Spec.Template
	require.Subset(t, pod.Labels, serverPod().Labels)
	var ports []int32
	for _, port := range pod.Spec.Containers[0].Ports {
		ports = append(ports, port.ContainerPort)
	}
	require.Contains(t, ports, int32(dispatchPort))
}

func TestPlan_NET2_RunnersAskThroughTheGate(t *testing.T) {
	s := testSetting()
	require.Contains(t, s.controllerCommand().Args, "--dispatch-url=http://"+s.addresses.Internal)
	s.addresses.Gate = "127.0.0.1:7"
	require.Contains(t, s.controllerCommand().Args, "--dispatch-url=http://127.0.0.1:7")
	require.Contains(t, s.controllerCommand().Args, "--server-url=http://"+s.addresses.Internal, "the controller is no runner")
}
