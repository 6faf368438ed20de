package portforward

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/test/kit/portforwardtest"
)

func TestServicesOf_AreThoseForAdministrators(t *testing.T) {
	found := servicesOf(append(portforwardtest.Services("team-b", "fleet-bullpen"), portforwardtest.Services("bullpen-system", "bullpen")...))
	require.Len(t, found, 2)
	first, second := found[0], found[1]
	require.Equal(t, "bullpen-system/bullpen-admin", first.String())
	require.Equal(t, "http://bullpen-admin.bullpen-system.svc:8082", first.URL())
	namespace, account := second.ServiceAccount()
	require.Equal(t, []string{"team-b", "fleet-bullpen-admin"}, []string{namespace, account})

	without := portforwardtest.Services("x", "x")
	for i := range without {
		without[i].Spec.Selector = nil
	}
	require.Empty(t, servicesOf(without), "a Service without a selector has no pods")

	for name, port := range map[string]corev1.ServicePort{
		"by its name": {Name: "https", Port: 443}, "by its protocol": {Name: "web", Port: 443, AppProtocol: ptr.To("https")},
	} {
		port.TargetPort = intstr.FromString("admin")
		service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y-admin"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{port},
		}}
		require.Equal(t, "https://y-admin.x.svc:443", servicesOf([]corev1.Service{service})[0].URL(), name)
	}
}

func TestReadyPod_IsTheNewestThatStays(t *testing.T) {
	terminating := portforwardtest.Pod("terminating", 0, corev1.ConditionTrue)
	terminating.DeletionTimestamp = ptr.To(metav1.Now())
	pods := []corev1.Pod{portforwardtest.Pod("old", time.Hour, corev1.ConditionTrue), portforwardtest.Pod("new", time.Minute, corev1.ConditionTrue), portforwardtest.Pod("starting", time.Second, corev1.ConditionFalse), terminating}
	chosen, found := readyPod(pods)
	require.True(t, found)
	require.Equal(t, "new", chosen.Name)
	_, found = readyPod(pods[2:])
	require.False(t, found)
	_, found = readyPod([]corev1.Pod{{}})
	require.False(t, found, "without conditions it is not known to be ready")
}

func TestPortOf_FollowsTheServicesTarget(t *testing.T) {
	for target, want := range map[intstr.IntOrString]int32{
		intstr.FromString("admin"): 8082, intstr.FromInt32(9999): 9999, intstr.FromString("none"): 0, intstr.FromInt32(0): 0,
	} {
		port, found := portOf(portforwardtest.Pod("a", 0, corev1.ConditionTrue), target)
		require.Equal(t, want, port, target.String())
		require.Equal(t, want != 0, found, target.String())
	}
}

func TestErrors_SayWhatToDo(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(pods, "", nil)
	two := servicesOf(append(portforwardtest.Services("a", "a"), portforwardtest.Services("b", "b")...))
	together := servicesOf(append(portforwardtest.Services("a", "one"), portforwardtest.Services("a", "two")...))
	for says, err := range map[string]error{
		"the cluster at https://c has no release of Bullpen. Install the chart, choose another with --context, or name a server with --server":                                                          &NoReleaseError{Cluster: "https://c"},
		"the cluster at https://c has no release of Bullpen in namespace n. Install the chart, choose another with --context or --system-namespace, or name a server with --server":                     &NoReleaseError{Cluster: "https://c", Namespace: "n"},
		"the cluster has 2 releases of Bullpen, with the Services a/a-admin, b/b-admin. Choose one with --system-namespace":                                                                             &SeveralReleasesError{Services: two},
		"the cluster has 2 releases of Bullpen, with the Services a/one-admin, a/two-admin. Run `kubectl -n a port-forward svc/one-admin 8082` for one of them, and use --server http://127.0.0.1:8082": &SeveralReleasesError{Services: together},
		"no pod of the Service a/a-admin is ready (3 not ready). `kubectl -n a get pods -l app.kubernetes.io/name=bullpen,app.kubernetes.io/component=server` lists them":                               &NoReadyPodError{Service: two[0], Pods: 3},
		"finding a pod: not allowed. A port-forward needs list on services and pods, and get and create on pods/portforward in namespace a. Get these rights, or name a server with --server":           problem("finding a pod", "a", forbidden),
		"finding a pod: the cluster's API is overloaded or restarting. Try again":                                                                                                                       problem("finding a pod", "a", apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "list", pods, "", "slow", 1, true)),
	} {
		require.EqualError(t, err, says)
	}
	require.ErrorIs(t, problem("x", "a", forbidden), forbidden, "the cause stays in the chain")
	require.NoError(t, problem("x", "a", nil))
}
