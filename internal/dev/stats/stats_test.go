package stats_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

// The nearest rank is the least sample that at least a share of q of the samples does not exceed.
func TestQuantile_IsTheNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Int64Range(0, 20), 1, 50).Draw(t, "samples")
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		kept := slices.Clone(samples)
		got := stats.Quantile(samples, q)
		require.Equal(t, kept, samples, "the samples keep their order")
		atMost, below := 0, 0
		for _, s := range samples {
			if s <= got {
				atMost++
			}
			if s < got {
				below++
			}
		}
		require.GreaterOrEqual(t, float64(atMost), q*float64(len(samples)))
		require.Less(t, float64(below), q*float64(len(samples)))
		require.Equal(t, got, stats.Quantile(slices.Sorted(slices.Values(samples)), q))
	})
}

func TestQuantile_Edges(t *testing.T) {
	require.Zero(t, stats.Quantile([]time.Duration(nil), 0.5))
	three := []time.Duration{3, 1, 2}
	require.Equal(t, []time.Duration{1, 2, 3}, []time.Duration{stats.Quantile(three, 0), stats.Quantile(three, 0.5), stats.Quantile(three, 1)})
}

func TestMedian(t *testing.T) {
	require.Zero(t, stats.Median([]float64{}))
	require.Equal(t, 2.0, stats.Median([]float64{3, 1, 2})) //nolint:testifylint // exact
	samples := []float64{4, 1, 3, 2}
	require.Equal(t, 2.5, stats.Median(samples)) //nolint:testifylint // exact
	require.Equal(t, []float64{4, 1, 3, 2}, samples)
}
