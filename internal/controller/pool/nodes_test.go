package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

func readyNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Ti")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, c := range change {
		c(node)
	}
	return node
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

func pollerEnded(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = ended(0) }

// change is what the watch of nodes does.
func (t *tracker) change(node *corev1.Node, now time.Time) map[types.NamespacedName]bool {
	_, runners := t.nodes.put(node)
	return t.nodeChanged(runners, now)
}

func TestNodes_CordonedNodesAreLeftByWhoeverShowsNoWork(t *testing.T) {
	tr := newTracker()
	s := tr.pool(key)
	require.Empty(t, tr.change(readyNode("n1"), t0))
	tr.change(readyNode("n2"), t0)
	s.podSeen(named("pool-idle", onNode("n1")), t0)
	s.podSeen(named("pool-busy", onNode("n1"), pollerEnded), t0)
	s.podSeen(named("pool-boot", onNode("n1"), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), t0)
	s.podSeen(named("pool-else", onNode("n2")), t0)
	s.podSeen(named("pool-firm", onNode("n1"), func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}), t0)
	asked := func() map[string]lifecycle.Reason {
		reasons := map[string]lifecycle.Reason{}
		for _, a := range s.plan(wishFor(5), counter(), 0, t0).plan.Ask {
			reasons[a.Runner.Name] = a.Reason
			require.Equal(t, "node n1 is cordoned", a.Detail)
		}
		return reasons
	}
	require.Empty(t, asked())
	require.Equal(t, map[types.NamespacedName]bool{key: true}, tr.change(readyNode("n1", cordoned), t0))
	require.Equal(t, map[string]lifecycle.Reason{"pool-idle": lifecycle.ReasonNodeCordoned, "pool-boot": lifecycle.ReasonNodeCordoned}, asked(),
		"EXCL-4 the busy one stays, and so does the one of a kind that is started there all the same")
	require.Empty(t, tr.change(readyNode("n1", cordoned, func(n *corev1.Node) { n.ResourceVersion = "2" }), t0), "its heartbeat")
	before := tr.nodes.currentVersion()
	news, runners := tr.nodes.put(readyNode("n1", cordoned, func(n *corev1.Node) { n.ResourceVersion = "3" }))
	require.False(t, news)
	require.Empty(t, runners)
	require.Equal(t, before, tr.nodes.currentVersion(), "and no nodes are matched again for it")
	require.Empty(t, tr.change(readyNode("n2", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "z"} }), t0), "a change that matters to no pool")

	tr.change(readyNode("n1"), t0) // uncordoned before the fence has answered
	w := s.plan(wishFor(5), counter(), 0, t0)
	require.Len(t, w.plan.Withdraw, 2)
	require.Equal(t, 3, s.counts("hash").of[lifecycle.StageIdle])

	deleted := readyNode("n1", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: t0} })
	tr.change(deleted, t0)
	r, _ := s.runners.Get("pool-firm")
	require.Equal(t, lifecycle.Unfit{Reason: lifecycle.ReasonNodeCordoned, Detail: "node n1 is being deleted"}, r.Unfit)
}

func TestTrimPod_KeepsWhatNodesAreJudgedBy(t *testing.T) {
	for _, pod := range []*corev1.Pod{
		idlePod(), idlePod(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
		}), idlePod(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), idlePod(takenByPodGC),
	} {
		trimmed, err := TrimPod(pod.DeepCopy())
		require.NoError(t, err)
		require.Equal(t, observe(pod), observe(trimmed.(*corev1.Pod)))
	}
}

// takenByPodGC is what Kubernetes does to a pod whose node is gone.
func takenByPodGC(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: podsigns.ReasonPodGC, Message: "node is gone",
	})
}

// POOL-7: that Kubernetes calls a pod failed because its node is gone does not mean that its runner has ended.
func TestObserve_POOL7_APodThatKubernetesGaveUpHasNotEnded(t *testing.T) {
	require.False(t, observe(idlePod(takenByPodGC)).terminal)
	require.True(t, observe(idlePod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })).terminal)
	require.True(t, observe(idlePod(func(p *corev1.Pod) {
		takenByPodGC(p)
		p.Status.Conditions[len(p.Status.Conditions)-1].Reason = "EvictionByEvictionAPI"
	})).terminal)
}

// P9: what an event of a node costs is what runs on it.
func BenchmarkNodeEvent(b *testing.B) {
	for _, size := range []int{50, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			tr := newTracker()
			s := tr.pool(key)
			for i := range size {
				node := "others"
				if i < 10 {
					node = "n1"
				}
				s.podSeen(named(fmt.Sprintf("pool-x%06d", i), onNode(node)), t0)
			}
			for b.Loop() {
				tr.change(readyNode("n1", cordoned), t0)
				tr.change(readyNode("n1"), t0)
			}
		})
	}
}

// A node that is silent for long may be dead, and its Node stays: runners there that look idle hold no places for ever.
func TestNodes_POOL6_RunnersOfASilentNodeAreReplacedAFewAtATime(t *testing.T) {
	tr := newTracker()
	s := tr.pool(key)
	silent := readyNode("n1", func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.Time{Time: t0}
	})
	tr.change(readyNode("n1"), t0)
	tr.change(readyNode("n2"), t0)
	s.podSeen(named("pool-a", onNode("n1")), t0)
	s.podSeen(named("pool-b", onNode("n1")), t0)
	s.podSeen(named("pool-c", onNode("n2")), t0)
	s.podSeen(named("pool-busy", onNode("n1"), pollerEnded), t0)
	tr.change(silent, t0)
	early := s.plan(wishFor(4), counter(), 0, t0.Add(nodes.UnreadyFor-1))
	require.Empty(t, early.plan.Ask)
	require.Equal(t, t0.Add(nodes.UnreadyFor), early.plan.Next, "and somebody looks then")
	at := t0.Add(nodes.UnreadyFor)
	w := s.plan(wishFor(4), counter(), 0, at)
	require.Len(t, w.plan.Ask, 1)
	require.Equal(t, "pool-a", w.plan.Ask[0].Runner.Name)
	require.Equal(t, lifecycle.ReasonNodeNotReady, w.plan.Ask[0].Reason)
	require.Contains(t, w.plan.Ask[0].Detail, "its node n1 is not ready since 20")
	require.False(t, w.plan.Ask[0].Runner.Ref("ns", "pool").Lost, "the node is there: nothing is lost")

	require.Equal(t, map[types.NamespacedName]bool{key: true}, tr.change(readyNode("n1"), at), "it reports again")
	w = s.plan(wishFor(4), counter(), 0, at)
	require.Len(t, w.plan.Withdraw, 1)
	require.Empty(t, w.plan.Ask)
}

// The result of an uncached read of a node without runners is not kept.
func TestNodeBook_KeepsNothingOfNodesWithoutRunners(t *testing.T) {
	p := newLostPool(t)
	p.podGone("pool-a", "uid-pool-a", t0)
	p.absent(t0)
	require.Empty(t, p.tracker.nodes.absent)
}
