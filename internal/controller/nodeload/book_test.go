package nodeload

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Whatever is set and forgotten, in whatever order, the loads are the sums of the last weights, and nothing is kept of what is gone.
func TestLoads_SCALE5_AreTheSumsOfTheLastWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads, model := New(), map[string]map[string]Weight{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			owner, runner := fmt.Sprint("o", rapid.IntRange(0, 2).Draw(t, "owner")), fmt.Sprint("r", rapid.IntRange(0, 3).Draw(t, "runner"))
			if rapid.IntRange(0, 9).Draw(t, "forget") == 0 {
				loads.Forget(owner)
				delete(model, owner)
				continue
			}
			var weight Weight
			if kind := rapid.IntRange(0, 2).Draw(t, "kind"); kind > 0 {
				weight = Weight{Node: fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node")), Load: lifecycle.Load{Runners: 1, Busy: kind - 1}}
			}
			loads.Set(owner, runner, weight)
			if model[owner] == nil {
				model[owner] = map[string]Weight{}
			}
			if model[owner][runner] = weight; weight == (Weight{}) {
				delete(model[owner], runner)
			}
		}
		for owner := range model {
			want := map[string]lifecycle.Load{}
			for _, weight := range model[owner] {
				want[weight.Node] = lifecycle.Load{}
			}
			for other, runners := range model {
				for _, weight := range runners {
					if sum, on := want[weight.Node]; on && other != owner {
						want[weight.Node] = lifecycle.Load{Runners: sum.Runners + weight.Load.Runners, Busy: sum.Busy + weight.Load.Busy}
					}
				}
			}
			require.Equal(t, want, loads.Others(owner))
		}
		for owner := range model {
			loads.Forget(owner)
		}
		require.Equal(t, New(), loads, "nothing is left")
	})
}

func TestWeightOf_SCALE5_CountsWhatStaysOnANode(t *testing.T) {
	for name, c := range map[string]struct {
		runner lifecycle.Runner
		has    bool
		want   Weight
	}{
		"idle":                   {lifecycle.Runner{Node: "n", Stage: lifecycle.StageIdle}, true, Weight{"n", lifecycle.Load{Runners: 1}}},
		"starting":               {lifecycle.Runner{Node: "n", Stage: lifecycle.StageStarting}, true, Weight{"n", lifecycle.Load{Runners: 1}}},
		"busy":                   {lifecycle.Runner{Node: "n", Stage: lifecycle.StageBusy}, true, Weight{"n", lifecycle.Load{Runners: 1, Busy: 1}}},
		"busy, and about to end": {lifecycle.Runner{Node: "n", Stage: lifecycle.StageBusy, Removal: lifecycle.RemovalGranted}, true, Weight{}},
		"leaving":                {lifecycle.Runner{Node: "n", Stage: lifecycle.StageTerminating}, true, Weight{}},
		"finished":               {lifecycle.Runner{Node: "n", Stage: lifecycle.StageFinished}, true, Weight{}},
		"lost":                   {lifecycle.Runner{Node: "n", Stage: lifecycle.StageLost}, true, Weight{}},
		"without a node":         {lifecycle.Runner{Stage: lifecycle.StageIdle}, true, Weight{}},
		"gone":                   {lifecycle.Runner{Node: "n", Stage: lifecycle.StageIdle}, false, Weight{}},
	} {
		require.Equal(t, c.want, WeightOf(c.runner, c.has), name)
	}
}
