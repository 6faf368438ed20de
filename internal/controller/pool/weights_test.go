package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func ofPool(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[runnerpod.LabelPool] = name }
}

// tainted is a node that Karpenter is about to remove, with its taint.
func tainted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
}

// An idle runner leaves a node that another tool is about to remove, as it leaves a cordoned one; and stays if the tool reverts that before
// the fence has answered.
func TestNodes_R5_EXCL4_NodesThatAreTakenAwayAreLeftByWhatShowsNoWork(t *testing.T) {
	tr := newTracker()
	s := tr.pool(key)
	tr.change(readyNode("n1"), t0)
	s.podSeen(named("pool-idle", onNode("n1")), t0)
	s.podSeen(named("pool-busy", onNode("n1"), pollerEnded), t0)
	s.podSeen(named("pool-boot", onNode("n1"), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), t0)
	s.podSeen(named("pool-firm", onNode("n1"), func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "karpenter.sh/disrupted", Operator: corev1.TolerationOpExists}}
	}), t0)
	asked := func() map[string]lifecycle.Reason {
		reasons := map[string]lifecycle.Reason{}
		for _, a := range s.plan(wishFor(4), counter(), 0, t0).plan.Ask {
			reasons[a.Runner.Name] = a.Reason
			require.Equal(t, "node n1 has the taint karpenter.sh/disrupted:NoSchedule and is being removed", a.Detail)
		}
		return reasons
	}
	require.Empty(t, asked())
	require.Equal(t, map[types.NamespacedName]bool{key: true}, tr.change(readyNode("n1", tainted), t0))
	require.Equal(t, map[string]lifecycle.Reason{"pool-idle": lifecycle.ReasonNodeCordoned, "pool-boot": lifecycle.ReasonNodeCordoned}, asked())
	tr.change(readyNode("n1"), t0)
	require.Len(t, s.plan(wishFor(4), counter(), 0, t0).plan.Withdraw, 2)

	tr.change(readyNode("n1", func(n *corev1.Node) { // Karpenter may remove it some time, if nothing changes
		n.Spec.Taints = []corev1.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectPreferNoSchedule}}
	}), t0)
	require.Empty(t, asked())
}

// SCALE-5: a pool that shrinks takes its runners from the node that is nearest to being empty of the runners of all pools.
func TestPlan_SCALE5_R5_TheRunnersOfOtherPoolsCount(t *testing.T) {
	tr := newTracker()
	ours, other := tr.pool(key), tr.pool(types.NamespacedName{Namespace: key.Namespace, Name: "other"})
	for _, name := range []string{"n1", "n2"} {
		tr.change(readyNode(name), t0)
	}
	ours.podSeen(named("pool-a", onNode("n1")), t0)
	ours.podSeen(named("pool-b", onNode("n2")), t0)
	ours.podSeen(named("pool-c", onNode("n2")), t0)
	victim := func() string {
		asks := ours.plan(wishFor(2), counter(), 0, t0).plan.Ask
		require.Len(t, asks, 1)
		for _, a := range asks { // it is taken back
			ours.change(a.Runner.Name, t0, func(m *member) { m.leave = lifecycle.Leave{} })
		}
		return asks[0].Runner.Name
	}
	require.Equal(t, "pool-a", victim(), "n1 has one, n2 two")
	other.podSeen(named("other-a", ofPool("other"), onNode("n1"), pollerEnded), t0)
	require.Equal(t, "pool-b", victim(), "n1 is held by a busy runner of another pool")
	other.podSeen(named("other-b", ofPool("other"), onNode("n2"), pollerEnded), t0)
	require.Equal(t, "pool-a", victim(), "both are: n1 has fewer")
	other.podGone("other-b", "uid-other-b", t0)
	require.Equal(t, "pool-b", victim())
	other.podGone("other-a", "uid-other-a", t0)
	require.Equal(t, "pool-a", victim())
	require.Empty(t, tr.loads.Others(other.owner()), "nothing is kept of a pool without runners")
}

// Whatever is shown of pods, in whatever order, exactly those count that stay where they are.
func TestNoteWeight_SCALE5_CountsWhatStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := newTracker()
		keys := []types.NamespacedName{key, {Namespace: key.Namespace, Name: "other"}}
		for step := range rapid.IntRange(0, 40).Draw(t, "steps") {
			at := rapid.IntRange(0, 1).Draw(t, "pool")
			name := fmt.Sprintf("%s-%d", keys[at].Name, rapid.IntRange(0, 4).Draw(t, "pod"))
			uid := types.UID(fmt.Sprintf("%s-%d", name, rapid.IntRange(0, 1).Draw(t, "uid")))
			s, now := tr.pool(keys[at]), t0.Add(time.Duration(step)*time.Second)
			pod := idlePod(ofPool(keys[at].Name), onNode(rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")))
			pod.Name, pod.UID = name, uid
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				s.podGone(name, string(uid), now)
				continue
			case 1:
				pollerEnded(pod)
			case 2:
				pod.Status.Phase = corev1.PodSucceeded
			case 3:
				s.change(name, now, func(m *member) { m.leave.Removal = lifecycle.RemovalGranted })
				continue
			}
			s.podSeen(observe(pod), now)
		}
		for i, key := range keys {
			want := map[string]lifecycle.Load{}
			for _, name := range tr.pool(keys[1-i]).runners.Names() { // the other's runners, where this one has some
				r, _ := tr.pool(keys[1-i]).runners.Get(name)
				if load := r.Load(); load != (lifecycle.Load{}) {
					want[r.Node] = lifecycle.Load{Runners: want[r.Node].Runners + load.Runners, Busy: want[r.Node].Busy + load.Busy}
				}
			}
			got, ours := tr.loads.Others(tr.pool(key).owner()), map[string]bool{}
			for _, name := range tr.pool(key).runners.Names() {
				if r, _ := tr.pool(key).runners.Get(name); r.Load() != (lifecycle.Load{}) {
					ours[r.Node] = true
					require.Equal(t, want[r.Node], got[r.Node])
				}
			}
			require.Len(t, got, len(ours))
		}
	})
}
