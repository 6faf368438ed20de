package network

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(func() int { return kit.Main(m) })) }

const (
	patience = 60 * time.Second
	interval = 50 * time.Millisecond
	tcp      = corev1.ProtocolTCP
	udp      = corev1.ProtocolUDP
)

// world is an installation of the chart in two namespaces of a live API server. Kubernetes' own controllers roll the server;
// what its nodes would do is the test's (settle).
type world struct {
	t               *testing.T
	env             *kit.Env
	admin           client.WithWatch
	system, runners string
}

// addresses is how many were given out: no two pods of the control plane that all tests share have the same.
var addresses atomic.Int64

func newWorld(t *testing.T) *world {
	t.Helper()
	env := kit.Cluster(t)
	w := &world{t: t, env: env, admin: env.Client(t), system: env.Namespace(t), runners: env.Namespace(t)}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: "bullpen-server"}}
	require.NoError(t, w.admin.Create(t.Context(), account))
	return w
}

// render is the chart, with an image's tag, for the world's namespaces.
func (w *world) render(tag string) []*unstructured.Unstructured {
	w.t.Helper()
	return render(w.t, w.system, map[string]any{
		"runners": map[string]any{"namespace": w.runners, "createNamespace": false}, "image": map[string]any{"tag": tag},
	}, "templates/networkpolicy.yaml", "templates/server/deployment.yaml")
}

func render(t testing.TB, namespace string, values map[string]any, templates ...string) []*unstructured.Unstructured {
	t.Helper()
	values["github"] = map[string]any{"appID": 1.0}
	manifests, err := helmchart.Render(helmchart.Release{Namespace: namespace, Values: values})
	require.NoError(t, err)
	objects, err := helmchart.Objects(helmchart.Under(manifests, templates...))
	require.NoError(t, err)
	return objects
}

// install applies objects, as an upgrade does; change, which may be nil, first makes something else of the policies.
func (w *world) install(tag string, change func([]networkingv1.NetworkPolicy) []networkingv1.NetworkPolicy) {
	w.t.Helper()
	var others []*unstructured.Unstructured
	var policies []networkingv1.NetworkPolicy
	for _, object := range w.render(tag) {
		if object.GetKind() != "NetworkPolicy" {
			others = append(others, object)
			continue
		}
		policies = append(policies, policyOf(w.t, object))
	}
	if change != nil {
		policies = change(policies)
	}
	for i := range policies {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&policies[i])
		require.NoError(w.t, err)
		others = append(others, &unstructured.Unstructured{Object: content})
	}
	for _, object := range others {
		unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(object.Object, "status")
		require.NoError(w.t, w.admin.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("helm"), client.ForceOwnership))
	}
	w.settle()
}

func policyOf(t testing.TB, object *unstructured.Unstructured) networkingv1.NetworkPolicy {
	t.Helper()
	var p networkingv1.NetworkPolicy
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &p))
	return p
}

// settle does what nodes do, until the server's rollout is through: every pod gets an address of its own and is ready.
func (w *world) settle() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for _, p := range w.pods(w.system) {
			if p.Status.PodIP == "" && p.DeletionTimestamp == nil && !w.ready(&p) {
				return false
			}
		}
		var d appsv1.Deployment
		require.NoError(w.t, w.admin.Get(w.t.Context(), client.ObjectKey{Namespace: w.system, Name: "bullpen-server"}, &d))
		s := d.Status
		return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.Replicas == s.UpdatedReplicas && s.AvailableReplicas == s.Replicas
	}, patience, interval, "the server's rollout never ended")
}

// ready gives a pod an address of either family, and lets it run; false if it was changed before.
func (w *world) ready(p *corev1.Pod) bool {
	w.t.Helper()
	n := addresses.Add(1)
	addr := fmt.Sprintf("10.244.%d.%d", n/250, n%250+1)
	now := metav1.Now()
	p.Status.Phase, p.Status.PodIP, p.Status.StartTime = corev1.PodRunning, addr, &now
	p.Status.PodIPs = []corev1.PodIP{{IP: addr}, {IP: fmt.Sprintf("fd10:244::%x", n)}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	err := w.admin.Status().Update(w.t.Context(), p)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

func (w *world) pods(namespace string) []corev1.Pod {
	w.t.Helper()
	var list corev1.PodList
	require.NoError(w.t, w.admin.List(w.t.Context(), &list, client.InNamespace(namespace)))
	return list.Items
}

// runner makes a warm runner, as the controller does.
func (w *world) runner(suffix string) types.NamespacedName {
	w.t.Helper()
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.runners, Name: "linux", UID: "none"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux"}, Template: v1alpha1.RunnerTemplate{Image: "runner:1"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
		},
	}
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}, suffix)
	require.NoError(w.t, err)
	pod.OwnerReferences, account.OwnerReferences = nil, nil // there is no such pool, and the garbage collector would delete them
	require.NoError(w.t, w.admin.Create(w.t.Context(), account))
	require.NoError(w.t, w.admin.Create(w.t.Context(), pod))
	require.Eventually(w.t, func() bool {
		require.NoError(w.t, w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod))
		return w.ready(pod)
	}, patience, interval)
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// busy writes the owner label, as the server does.
func (w *world) busy(runner types.NamespacedName) {
	w.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+runnerpod.LabelOwner+`":"acme"}}}`))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: runner.Namespace, Name: runner.Name}}
	require.NoError(w.t, w.admin.Patch(w.t.Context(), pod, patch))
}

// evaluator reads everything from the API server.
func (w *world) evaluator() *netpolicy.Evaluator {
	w.t.Helper()
	var policies networkingv1.NetworkPolicyList
	var pods corev1.PodList
	var namespaces corev1.NamespaceList
	require.NoError(w.t, w.admin.List(w.t.Context(), &policies))
	require.NoError(w.t, w.admin.List(w.t.Context(), &pods))
	require.NoError(w.t, w.admin.List(w.t.Context(), &namespaces))
	e, err := netpolicy.New(policies.Items, pods.Items, namespaces.Items)
	require.NoError(w.t, err)
	return e
}

func (w *world) view(runner types.NamespacedName) netpolicy.View {
	w.t.Helper()
	v, known := w.evaluator().View(runner)
	require.True(w.t, known)
	return v
}

// servers are the server's pods, at one of their ports.
func (w *world) servers(port uint16) []netip.AddrPort {
	w.t.Helper()
	var found []netip.AddrPort
	for _, p := range w.pods(w.system) {
		for _, ip := range p.Status.PodIPs {
			found = append(found, netip.AddrPortFrom(netip.MustParseAddr(ip.IP), port))
		}
	}
	require.Len(w.t, found, 4, "two replicas, of two addresses each")
	return found
}
