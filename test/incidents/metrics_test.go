package incidents

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Jobs run, fail to be minted and swap runners; then every metric of the server is checked.
func TestMetrics_NoLabelNamesWhatHasNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var names []string // of what there is ever more of
	for range 3 {
		p := w.add("linux")
		run := w.submit("acme", "linux", 1)
		run.running()
		names = append(names, p.Name, p.UID, fmt.Sprint(run.jobs[0]), fmt.Sprint(run.id), w.claim(p).RunnerName)
		run.release()
		run.succeed()
	}
	names = append(names, "acme")
	families, err := w.up().metrics.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
	labels := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				labels++
				for _, name := range names {
					require.False(t, strings.Contains(label.GetValue(), name), "%s has the label %s=%q", family.GetName(), label.GetName(), label.GetValue())
				}
			}
		}
	}
	require.NotZero(t, labels)
}
