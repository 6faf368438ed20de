package load

import (
	"math"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

// first is the smallest of n uniform numbers, by one uniform number.
func first(u float64, n int) float64 { return -math.Expm1(math.Log1p(-u) / float64(n)) }

// Summary describes a stage, in seconds.
type Summary struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Summarize does not change values.
func Summarize(values []float64) Summary {
	sorted := slices.Sorted(slices.Values(values))
	return Summary{
		Count: len(sorted), P50: stats.Quantile(sorted, 0.5), P90: stats.Quantile(sorted, 0.9), P99: stats.Quantile(sorted, 0.99), Max: stats.Quantile(sorted, 1),
	}
}

// Bucket counts values above the bucket before it and up to UpTo seconds.
type Bucket struct {
	UpTo  float64 `json:"upTo"`
	Count int     `json:"count"`
}

// bounds of buckets in seconds: 1, 2, 5 of each power of ten, from a millisecond to 50,000 s. The last holds all that is above.
var bounds = func() []float64 {
	var out []float64
	for power := -3; power <= 4; power++ {
		for _, step := range []float64{1, 2, 5} {
			if power < 0 { // a division is exact where a product is not: 0.005, not 0.0050000000000000001
				out = append(out, step/math.Pow10(-power))
			} else {
				out = append(out, step*math.Pow10(power))
			}
		}
	}
	return out
}()

// Histogram has the buckets from the first that is not empty to the last, those between included.
func Histogram(values []float64) []Bucket {
	counts := make([]int, len(bounds))
	from, to := len(bounds), -1
	for _, v := range values {
		i, _ := slices.BinarySearch(bounds, v)
		i = min(i, len(bounds)-1)
		counts[i]++
		from, to = min(from, i), max(to, i)
	}
	buckets := []Bucket{}
	for i := from; i <= to; i++ {
		buckets = append(buckets, Bucket{UpTo: bounds[i], Count: counts[i]})
	}
	return buckets
}
