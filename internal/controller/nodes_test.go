package controller_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const foreignFinalizer = "example.com/theirs"

// fleetBench is a bench with nodes of its own, and a clock that a test moves on.
type fleetBench struct {
	*bench
	ahead atomic.Int64
	// blind makes the controller's own reads of single nodes fail, past the cache.
	blind atomic.Bool
}

func newFleetBench(t *testing.T) *fleetBench {
	t.Helper()
	y := &fleetBench{bench: newBench(t)}
	y.bench.stop()
	options := y.options()
	options.Now = func() time.Time { return time.Now().Add(time.Duration(y.ahead.Load())) }
	options.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if y.blind.Load() && strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
				return nil, context.DeadlineExceeded
			}
			return next.RoundTrip(r)
		})
	})
	y.bench.stop = y.run(options)
	return y
}

// node registers one on which this test's pools alone run.
func (y *fleetBench) node(name string) *corev1.Node {
	y.t.Helper()
	return y.env.RegisterNode(y.t, y.namespace+"-"+name, func(n *corev1.Node) {
		n.Labels["fleet"] = y.namespace
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "fleet", Value: y.namespace, Effect: corev1.TaintEffectNoSchedule})
	})
}

func (y *fleetBench) fleetPool(name string, replicas int32, change ...func(*v1alpha1.RunnerPool)) {
	y.t.Helper()
	y.pool(name, replicas, append(change, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.NodeSelector = map[string]string{"fleet": y.namespace}
		p.Spec.Template.Tolerations = []corev1.Toleration{{Key: "fleet", Operator: corev1.TolerationOpExists}}
		p.Spec.Provisioning.StartTimeout = &metav1.Duration{} // the clock moves on a lot
		p.Spec.Provisioning.UnschedulableTimeout = &metav1.Duration{}
	})...)
}

// onNodes waits until the pool has n pods and each has a node, and makes them idle.
func (y *fleetBench) onNodes(pool string, n int) []corev1.Pod {
	y.t.Helper()
	var pods []corev1.Pod
	y.eventually("each has a node", func() bool {
		pods = y.pods(pool)
		return len(pods) == n && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
	})
	for _, pod := range pods {
		y.makeIdle(pod.Name)
	}
	y.eventually("idle", func() bool { return int(y.get(pool).Status.Idle) == n })
	return pods
}

// finalizers puts finalizers on a pod, and sees to it that they are gone after the test.
func (y *fleetBench) finalizers(name string, finalizers ...string) {
	y.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name}}
	set := func(ctx context.Context, to string) error {
		return y.admin.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[`+to+`]}}`)))
	}
	require.NoError(y.t, set(y.t.Context(), `"`+strings.Join(finalizers, `","`)+`"`))
	y.t.Cleanup(func() { require.NoError(y.t, client.IgnoreNotFound(set(context.Background(), ""))) })
}

func (y *fleetBench) podOf(name string) (corev1.Pod, bool) {
	y.t.Helper()
	var pod corev1.Pod
	err := y.admin.Get(y.t.Context(), types.NamespacedName{Namespace: y.namespace, Name: name}, &pod)
	require.NoError(y.t, client.IgnoreNotFound(err))
	return pod, !apierrors.IsNotFound(err)
}

// pass advances the clock and reconciles the pool until the condition holds.
func (y *fleetBench) pass(pool, what string, condition func() bool) {
	y.t.Helper()
	y.eventually(what, func() bool {
		y.tick(pool, 10*time.Second)
		return condition()
	})
}

func (y *fleetBench) tick(pool string, by time.Duration) {
	y.t.Helper()
	ahead := y.ahead.Add(int64(by))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxRunnerAge":"`+(1000*time.Hour+time.Duration(ahead)).Truncate(time.Second).String()+`"}}`))
	object := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: pool}}
	require.NoError(y.t, client.IgnoreNotFound(y.admin.Patch(y.t.Context(), object, patch)))
}

func (y *fleetBench) removeNode(node *corev1.Node) {
	y.t.Helper()
	require.NoError(y.t, y.admin.Delete(y.t.Context(), node.DeepCopy()))
}

// Idle runners leave a cordoned node and are replaced elsewhere; busy ones stay.
func TestPool_EXCL4_ACordonedNodeIsLeftByIdleRunnersAlone(t *testing.T) {
	y := newFleetBench(t)
	first := y.node("first")
	y.fleetPool("cordon", 3)
	pods := y.onNodes("cordon", 3)
	busy := pods[0].Name
	y.makeBusy(busy)
	second := y.node("second")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	require.NoError(t, y.admin.Patch(t.Context(), first.DeepCopy(), patch))
	y.eventually("replaced on the other node", func() bool {
		elsewhere := 0
		for _, pod := range y.pods("cordon") {
			require.False(t, pod.Name == busy && pod.DeletionTimestamp != nil)
			if pod.Spec.NodeName == second.Name {
				elsewhere++
			} else if pod.Name != busy && pod.DeletionTimestamp != nil {
				y.stopDeleted(&pod)
			}
		}
		return elsewhere == 2 && len(y.pods("cordon")) == 3
	})
	require.Contains(t, y.podNames("cordon"), busy)
	y.eventually("the accounts of those that left are gone", func() bool {
		return slices.Equal(y.podNames("cordon"), y.accountNames("cordon"))
	})
}

// POOL-7: the node is gone. Runners without work go, with our finalizer and without a kubelet's word; a busy one stays
// until the server has proof; what others hold stays held.
func TestPool_POOL7_RunnersOfAVanishedNode(t *testing.T) {
	y := newFleetBench(t)
	gone := y.node("gone")
	y.fleetPool("lost", 3)
	pods := y.onNodes("lost", 3)
	idle, held, busy := pods[0], pods[1], pods[2]
	y.finalizers(idle.Name, runnerpod.FinalizerSandbox)
	y.finalizers(held.Name, runnerpod.FinalizerSandbox, foreignFinalizer)
	y.finalizers(busy.Name, runnerpod.FinalizerSandbox)
	y.makeBusy(busy.Name)
	y.eventually("seen", func() bool { return y.get("lost").Status.Busy == 1 })
	y.node("left")

	y.removeNode(gone)
	y.pass("lost", "the idle one goes", func() bool { _, there := y.podOf(idle.Name); return !there })
	y.pass("lost", "and the other but for what holds it", func() bool {
		pod, there := y.podOf(held.Name)
		require.True(t, there)
		return slices.Equal(pod.Finalizers, []string{foreignFinalizer}) && pod.DeletionTimestamp != nil
	})
	y.pass("lost", "the busy one is asked about again and again", func() bool { return y.server.askedAsLost(string(busy.UID)) >= 3 })
	pod, there := y.podOf(busy.Name)
	require.True(t, there)
	require.Nil(t, pod.DeletionTimestamp)
	require.Equal(t, []string{runnerpod.FinalizerSandbox}, pod.Finalizers)

	y.server.prove(string(busy.UID), "GitHub says that it is gone")
	y.pass("lost", "and goes by GitHub's word", func() bool { _, there := y.podOf(busy.Name); return !there })
	y.eventually("nothing of it is left, and the server knows", func() bool {
		_, reported := y.server.reportOf(busy.Name)
		return reported && !slices.Contains(y.accountNames("lost"), busy.Name) && !slices.Contains(y.accountNames("lost"), idle.Name)
	})
	y.eventually("replaced", func() bool {
		live := 0
		for _, pod := range y.pods("lost") {
			if pod.DeletionTimestamp == nil {
				live++
			}
		}
		return live == 3
	})
}

// POOL-7: nothing happens while the node may still exist, nor when it is registered again.
func TestPool_POOL7_NODE8_DoubtAndARegisteredNodeChangeNothing(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("flaps")
	y.fleetPool("doubt", 2)
	pods := y.onNodes("doubt", 2)
	y.makeBusy(pods[0].Name)
	for _, pod := range pods {
		y.finalizers(pod.Name, runnerpod.FinalizerSandbox)
	}
	y.node("other")
	unharmed := func() {
		t.Helper()
		for _, pod := range pods {
			now, there := y.podOf(pod.Name)
			require.True(t, there)
			require.Nil(t, now.DeletionTimestamp)
			require.Equal(t, []string{runnerpod.FinalizerSandbox}, now.Finalizers)
		}
		require.Zero(t, y.server.askedAsLost(string(pods[0].UID))+y.server.askedAsLost(string(pods[1].UID)))
	}
	y.blind.Store(true)
	y.removeNode(node)
	for range 20 {
		y.tick("doubt", 10*time.Second)
		observed := y.get("doubt").Generation
		y.eventually("looked at", func() bool { return y.get("doubt").Status.ObservedGeneration >= observed })
	}
	unharmed()

	back := y.env.RegisterNode(t, node.Name, func(n *corev1.Node) { n.Labels, n.Spec.Taints = node.Labels, node.Spec.Taints })
	require.NotEqual(t, node.UID, back.UID)
	y.blind.Store(false)
	for range 20 {
		y.tick("doubt", 10*time.Second)
		observed := y.get("doubt").Generation
		y.eventually("looked at", func() bool { return y.get("doubt").Status.ObservedGeneration >= observed })
	}
	unharmed()
	y.eventually("as before", func() bool { s := y.get("doubt").Status; return s.Idle == 1 && s.Busy == 1 })
}

// POOL-2, POOL-7: a pool that is being deleted is not held for ever by runners of a node that is gone.
func TestPool_POOL7_ATerminatingPoolIsFreedOfItsLostRunners(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("gone")
	y.fleetPool("ending", 1)
	busy := y.onNodes("ending", 1)[0]
	y.finalizers(busy.Name, runnerpod.FinalizerSandbox)
	y.makeBusy(busy.Name)
	y.eventually("seen", func() bool { return y.get("ending").Status.Busy == 1 })
	y.node("left")
	require.NoError(t, y.admin.Delete(t.Context(), y.get("ending")))
	y.eventually("draining", func() bool { return y.condition("ending", v1alpha1.ConditionDraining) != nil })
	y.removeNode(node)
	y.pass("ending", "asked about", func() bool { return y.server.askedAsLost(string(busy.UID)) > 0 })
	require.False(t, y.poolGone("ending"))
	y.server.prove(string(busy.UID), "GitHub says that it is gone")
	y.pass("ending", "gone", func() bool { return y.poolGone("ending") && len(y.podNames("ending")) == 0 })
}

// POOL-6: a pool whose runners hang while they start cannot use up what its fleet may start.
func TestPool_POOL6_StartsAreLimitedForEachNode(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("one")
	limit := func(p *v1alpha1.RunnerPool) { p.Spec.Provisioning.MaxConcurrentStarts = ptr.To[int32](2) }
	y.fleetPool("hog", 6, limit)
	y.havePods("hog", 2)
	y.fleetPool("poor", 2)
	y.havePods("poor", 1)
	y.eventually("they have found their node", func() bool {
		return !slices.ContainsFunc(append(y.pods("hog"), y.pods("poor")...), func(p corev1.Pod) bool { return p.Spec.NodeName != node.Name })
	})
	require.Len(t, y.pods("hog"), 2)
	y.makeIdle(y.podNames("hog")...)
	y.havePods("hog", 3) // one of the two has its place free: the other is poor's
	y.makeIdle(y.podNames("poor")...)
	y.havePods("poor", 2)
	y.makeIdle(y.podNames("poor")...)
	y.havePods("hog", 4)
	y.node("two")
	y.havePods("hog", 6)
}
