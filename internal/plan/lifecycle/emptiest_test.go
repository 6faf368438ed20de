package lifecycle

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// placed puts runners on nodes, one after the other.
func placed(runners []Runner, nodes ...string) []Runner {
	for i := range runners {
		runners[i].Node = nodes[i%len(nodes)]
	}
	return runners
}

func TestMakePlan_SCALE5_R5_AShrinkingPoolLeavesNodes(t *testing.T) {
	idle := func(nodes ...string) []Runner { return placed(at(StageIdle, "b", len(nodes)), nodes...) }
	cases{
		{name: "the node with the fewest, and then the next", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(idle("full", "few", "full", "one", "few", "full")),
			ask:     []string{"idle-b-3 ScaleDown", "idle-b-1 ScaleDown", "idle-b-4 ScaleDown"}},
		{name: "one with a busy runner comes last, however few there are", wish: Wish{Desired: 4, TemplateHash: "b"},
			runners: set(idle("held", "full", "full", "full"), placed(at(StageBusy, "b", 1), "held")),
			ask:     []string{"idle-b-1 ScaleDown"}},
		{name: "runners of other pools count", wish: Wish{Desired: 2, TemplateHash: "b", Others: map[string]Load{"a": {Runners: 5}}},
			runners: set(idle("a", "b", "b")), ask: []string{"idle-b-1 ScaleDown"}},
		{name: "and the busy ones among them", wish: Wish{Desired: 2, TemplateHash: "b", Others: map[string]Load{"a": {Runners: 1, Busy: 1}}},
			runners: set(idle("a", "b", "b")), ask: []string{"idle-b-1 ScaleDown"}},
		{name: "what is leaving does not hold a node", wish: Wish{Desired: 4, TemplateHash: "b"},
			runners: set(idle("a", "b", "b", "a", "a"), placed(at(StageTerminating, "b", 2, removal(RemovalDeleting, ReasonScaleDown, t0)), "b", "b")),
			ask:     []string{"idle-b-1 ScaleDown"}},
		{name: "starting ones go first still", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(idle("a", "b", "b"), placed(at(StageStarting, "b", 2), "b", "a")),
			ask:     []string{"starting-b-1 ScaleDown", "starting-b-0 ScaleDown"}},
		{name: "and before them those without a node", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(idle("a"), placed(at(StageStarting, "b", 2), "a", "")), ask: []string{"starting-b-1 ScaleDown"}},
		{name: "the old template before the emptier node", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(idle("one", "full"), placed(at(StageIdle, "a", 1), "full")), ask: []string{"idle-a-0 ScaleDown"}},
		{name: "who was asked stays the victim", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(idle("one", "full"), placed(at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, t0)), "full")),
			ask:     []string{"terminating-b-0 ScaleDown"}},
		{name: "nodes that are alike go by name, and their runners by age", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(idle("b", "a", "a", "b")), ask: []string{"idle-b-1 ScaleDown", "idle-b-2 ScaleDown"}},
	}.check(t)
}

// SCALE-5: of idle runners, none is taken while another one's node is nearer to being empty; and no choice of as many runners would have left
// more nodes.
func TestMakePlan_SCALE5_R5_LeavesAsManyNodesAsAnyChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"n0", "n1", "n2", "n3"}
		var runners []Runner
		for i := range rapid.IntRange(1, 10).Draw(t, "runners") {
			r := at(rapid.SampledFrom([]Stage{StageIdle, StageIdle, StageIdle, StageBusy}).Draw(t, "stage"), "b", 1)[0]
			r.Name, r.Node = fmt.Sprintf("r%d", i), rapid.SampledFrom(nodes).Draw(t, "node")
			runners = append(runners, r)
		}
		others := map[string]Load{}
		for _, node := range nodes {
			if n := rapid.IntRange(0, 3).Draw(t, "others on "+node); n > 0 {
				others[node] = Load{Runners: n, Busy: rapid.IntRange(0, n).Draw(t, "busy on "+node)}
			}
		}
		wish := Wish{Desired: rapid.IntRange(0, len(runners)).Draw(t, "desired"), TemplateHash: "b", Others: others}
		taken := map[string]bool{}
		for _, a := range MakePlan(wish, NewSet(runners...), t0).Ask {
			require.Equal(t, ReasonScaleDown, a.Reason)
			taken[a.Runner.Name] = true
		}
		loads := map[string]Load{}
		for _, r := range runners {
			loads[r.Node] = loads[r.Node].plus(r.Load())
		}
		for node, load := range others {
			loads[node] = loads[node].plus(load)
		}
		before := func(a, b string) bool { // a second implementation
			if held := [2]bool{loads[a].Busy > 0, loads[b].Busy > 0}; held[0] != held[1] {
				return held[1]
			}
			return loads[a].Runners < loads[b].Runners
		}
		var idle []Runner
		for _, r := range runners {
			if r.Stage == StageIdle {
				idle = append(idle, r)
			}
		}
		for _, victim := range idle {
			for _, kept := range idle {
				if taken[victim.Name] && !taken[kept.Name] {
					require.False(t, before(kept.Node, victim.Node), "%s on %s was taken, and %s on %s was not", victim.Name, victim.Node, kept.Name, kept.Node)
				}
			}
		}
		left := func(taken func(int) bool) int {
			holds := map[string]int{}
			for i, r := range idle {
				if !taken(i) {
					holds[r.Node]++
				}
			}
			n := 0
			for _, node := range nodes {
				ours := loads[node].Runners - others[node].Runners
				if ours > 0 && loads[node].Busy == 0 && others[node].Runners == 0 && holds[node] == 0 {
					n++
				}
			}
			return n
		}
		if len(others) > 0 {
			return // a node may then be near to being empty, and not by us
		}
		best := 0
		for choice := range 1 << len(idle) {
			if bits.OnesCount(uint(choice)) == len(taken) {
				best = max(best, left(func(i int) bool { return choice&(1<<i) != 0 }))
			}
		}
		require.Equal(t, best, left(func(i int) bool { return taken[idle[i].Name] }), "nodes left")
	})
}

// The order is total in what is known of the runners: equal sets give equal plans, however they were built (SCALE-4).
func TestMakePlan_SCALE5_SCALE4_IsDeterministicWithNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish, runners := drawWish(t), drawRunners(t)
		for i := range runners {
			runners[i].Node = rapid.SampledFrom([]string{"", "n0", "n1", "n2"}).Draw(t, "node")
		}
		wish.Others = map[string]Load{"n0": {Runners: 1}, "n2": {Runners: 2, Busy: 1}}
		shuffled := rapid.Permutation(runners).Draw(t, "order")
		require.Equal(t, MakePlan(wish, NewSet(runners...), t0), MakePlan(wish, NewSet(shuffled...), t0))
		require.Equal(t, map[string]Load{"n0": {Runners: 1}, "n2": {Runners: 2, Busy: 1}}, wish.Others, "the wish is not changed")
	})
}

// Shrinking a pool to nothing costs n log n.
func BenchmarkMakePlan_Shrinks(b *testing.B) {
	for _, size := range []int{50, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			runners := at(StageIdle, "b", size)
			for i := range runners {
				runners[i].Node = fmt.Sprintf("n%d", i%(size/10))
			}
			s := NewSet(runners...)
			for b.Loop() {
				if plan := MakePlan(Wish{TemplateHash: "b"}, s, t0); len(plan.Ask) != size {
					b.Fatal("not shrunk")
				}
			}
		})
	}
}
