package stats

import (
	"math"
	"slices"
)

// Number is what samples may be: time.Duration is one.
type Number interface{ ~int64 | ~float64 }

// Quantile returns the sample at the nearest rank, or zero if there are no samples. q is from 0 to 1. The samples keep their order; sorted
// ones are not sorted again.
func Quantile[S ~[]N, N Number](samples S, q float64) N {
	if len(samples) == 0 {
		return 0
	}
	sorted := ascending(samples)
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle sample, or the mean of the two in the middle; zero if there are no samples. The samples keep their order.
func Median[S ~[]N, N Number](samples S) N {
	if len(samples) == 0 {
		return 0
	}
	sorted := ascending(samples)
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func ascending[S ~[]N, N Number](samples S) []N {
	if slices.IsSorted(samples) {
		return samples
	}
	return slices.Sorted(slices.Values(samples))
}
