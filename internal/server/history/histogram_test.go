package history

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// waits are queue times of up to a day and a half, and their histogram.
func waits(t *rapid.T, name string) (all []float64, counted Histogram) {
	all = rapid.SliceOfN(rapid.Map(rapid.Float64Range(-4, 17), math.Exp2), 0, 60).Draw(t, name)
	for _, seconds := range all {
		counted = counted.With(Bucket(seconds), 1)
	}
	return all, counted
}

// A quantile is in the bucket of the job that has that rank, and grows with the share.
func TestQuantile_IsInTheBucketOfItsJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, counted := waits(t, "waits")
		require.EqualValues(t, len(all), counted.Jobs())
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		got, ok := counted.Quantile(q)
		require.Equal(t, len(all) > 0, ok)
		if !ok {
			return
		}
		slices.Sort(all)
		rank := max(int(math.Ceil(q*float64(len(all))-rounding)), 1)
		low, high := edges(Bucket(all[rank-1]))
		require.GreaterOrEqual(t, got, low*(1-1e-9))
		require.LessOrEqual(t, got, high*(1+1e-9))
		more, _ := counted.Quantile(q + rapid.Float64Range(0, 1).Draw(t, "more"))
		require.GreaterOrEqual(t, more, got-1e-9)
	})
}

// Histograms add up in any order to the histogram of all, and adding changes none of them.
func TestPlus_IsTheHistogramOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, a := waits(t, "a")
		second, b := waits(t, "b")
		before := slices.Clone(a)
		var whole Histogram
		for _, seconds := range slices.Concat(first, second) {
			whole = whole.With(Bucket(seconds), 1)
		}
		require.Equal(t, whole, a.Plus(b))
		require.Equal(t, whole, b.Plus(a))
		require.Equal(t, before, a)
	})
}

// Stored rows count by these bounds: to change them is a migration.
func TestBounds_AreFixed(t *testing.T) {
	all := Bounds()
	require.Len(t, all, 37)
	require.Equal(t, []float64{.25, 1, 64, 65536}, []float64{all[0], all[4], all[16], all[36]})
	require.True(t, slices.IsSorted(all))
	for seconds, bucket := range map[float64]int{0: 0, .24: 0, .25: 1, 1: 5, 65535: 36, 65536: 37, 1e9: 37} {
		require.Equal(t, bucket, Bucket(seconds), seconds)
	}
	beyond, ok := Histogram{}.With(37, 1).Quantile(.5)
	require.True(t, ok)
	require.InDelta(t, 65536, beyond, 1e-6, "no bound is known beyond the last")
	require.Equal(t, Histogram{1}, Histogram{1}.With(38, 1).With(-1, 1).With(0, -1), "there is no such bucket")
}
