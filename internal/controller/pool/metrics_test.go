package pool

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Saturated and Starved are distinct: each is set for as long as its pool is at its maximum, or cannot start runners.
func TestMetrics_SaturatedAndStarvedAreToldApart(t *testing.T) {
	tr := newTracker()
	s := tr.pool(key)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(stageCollector{tr}))
	shows := func(saturated, starved metav1.ConditionStatus, want string) {
		t.Helper()
		s.shows([]metav1.Condition{
			{Type: v1alpha1.ConditionSaturated, Status: saturated}, {Type: v1alpha1.ConditionStarved, Status: starved},
		})
		found, err := testutil.CollectAndFormat(registry, expfmt.TypeTextPlain, "bullpen_runnerpool_saturated", "bullpen_runnerpool_starved")
		require.NoError(t, err)
		var values []string
		for line := range strings.Lines(string(found)) {
			if !strings.HasPrefix(line, "#") {
				values = append(values, strings.TrimSpace(strings.TrimPrefix(line, "bullpen_runnerpool_")))
			}
		}
		require.Equal(t, want, strings.Join(values, " "))
	}
	shows(metav1.ConditionTrue, metav1.ConditionFalse, `saturated{pool="pool"} 1 starved{pool="pool"} 0`)
	shows(metav1.ConditionFalse, metav1.ConditionTrue, `saturated{pool="pool"} 0 starved{pool="pool"} 1`)
	shows(metav1.ConditionUnknown, metav1.ConditionFalse, `saturated{pool="pool"} 0 starved{pool="pool"} 0`)
}
