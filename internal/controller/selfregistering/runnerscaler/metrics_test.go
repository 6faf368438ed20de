package runnerscaler

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/plan/scaling/selfregistering"
)

// F 8.13: the number of series grows only with the number of owners, not with their jobs or runners, and they are deleted with their owner.
func TestMetrics_F813_NoSeriesGrowsWithJobsOrRunners(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	require.NoError(t, err)
	series := func() int {
		t.Helper()
		families, err := registry.Gather()
		require.NoError(t, err)
		n := 0
		for _, family := range families {
			n += len(family.Metric)
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					require.Contains(t, []string{"kind", "name", "outcome", "direction"}, label.GetName(), "a label of %s", family.GetName())
				}
			}
		}
		return n
	}
	show := func(owners, jobs int) {
		var todo []change
		for i := range owners {
			todo = append(todo, change{
				owner: &owner{kind: "RunnerSet", namespace: "runners", name: fmt.Sprintf("set-%d", i)},
				result: selfregistering.Result{
					Queued: jobs, Running: jobs, State: selfregistering.State{Desired: 2 * jobs},
					Problem: fmt.Sprintf("job %d of %d cannot be read", i, jobs),
				},
			})
		}
		m.show(todo)
	}
	show(3, 10)
	few := series()
	for jobs := 10; jobs <= 100; jobs += 10 {
		show(3, jobs)
	}
	require.Equal(t, few, series(), "ten times as many jobs")
	show(1, 100)
	require.Equal(t, few/3, series(), "two of three owners are gone, and so is what was said of them")
}
