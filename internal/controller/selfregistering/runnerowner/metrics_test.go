package runnerowner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// series counts what is exported, and says of each label that it is one of those that have few values.
func (b *bench) series() int {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	require.NotEmpty(b.t, families)
	n := 0
	for _, family := range families {
		n += len(family.Metric)
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				require.Contains(b.t, []string{"kind", "outcome", "reason", "step", "verdict", "stage"}, label.GetName(), "a label of %s", family.GetName())
				require.False(b.t, strings.Contains(label.GetValue(), owner+"-"), "%s names a runner: %s", family.GetName(), label.GetValue())
			}
		}
	}
	return n
}

// F 8.13: no metric has a label that grows with jobs or runners.
func noSeriesGrows(t *testing.T, b *bench) {
	const few = 2
	b.kind.create(b, some(few, true))
	through := func(n int) { // n runners run a job each, and as many are removed while they are idle
		t.Helper()
		pods := b.have(n)
		b.idle(pods...)
		b.counts("all are idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == int32(n) })
		b.work(pods...)
		b.finish(pods...)
		b.eventually("others are there", func() bool {
			now := b.pods()
			for i := range pods {
				if b.exists(pods[i]) {
					return false
				}
			}
			return len(now) == n
		})
		b.idle(b.have(n)...)
		b.kind.edit(b, replicas(0))
		b.have(0)
	}
	through(few)
	before := b.series()
	b.kind.edit(b, replicas(10*few))
	through(10 * few)
	require.Less(t, b.series()-before, 4*few, "%d more runners and jobs have passed through: at most an outcome that there was not before", 2*9*few)
}
