package history

import (
	"math"
	"slices"
	"sort"
)

// Histogram counts queue times by bucket. Bucket 0 is below the first of Bounds, bucket i begins at bound i-1. Buckets at the end that
// are empty may be left out. Histograms add up, so the quantiles of any span come from the histograms of its parts.
type Histogram []int64

// Two buckets for each doubling, from a quarter of a second to 18 hours: a quantile and its true value are within two fifths of each other.
const (
	boundsPerDoubling = 2
	firstDoubling     = -2
	lastDoubling      = 16
)

var bounds = func() []float64 {
	var all []float64
	for n := firstDoubling * boundsPerDoubling; n <= lastDoubling*boundsPerDoubling; n++ {
		all = append(all, math.Exp2(float64(n)/boundsPerDoubling))
	}
	return all
}()

// Bounds are the seconds at which the second and each later bucket begins. They never change: rows that are stored count by them.
func Bounds() []float64 { return slices.Clone(bounds) }

// Bucket is the one that a queue time belongs to.
func Bucket(seconds float64) int {
	return sort.Search(len(bounds), func(i int) bool { return bounds[i] > seconds })
}

// With counts more jobs in a bucket. A bucket that does not exist changes nothing.
func (h Histogram) With(bucket int, jobs int64) Histogram {
	if bucket < 0 || bucket > len(bounds) || jobs <= 0 {
		return h
	}
	sum := make(Histogram, max(len(h), bucket+1))
	copy(sum, h)
	sum[bucket] += jobs
	return sum
}

// Plus adds two histograms.
func (h Histogram) Plus(other Histogram) Histogram {
	if len(h) < len(other) {
		h, other = other, h
	}
	sum := slices.Clone(h)
	for i, jobs := range other {
		sum[i] += jobs
	}
	return sum
}

// Jobs is how many were counted.
func (h Histogram) Jobs() (jobs int64) {
	for _, n := range h {
		jobs += n
	}
	return jobs
}

// Quantile is the queue time in seconds that the share q of the jobs did not exceed; false without jobs. Within a bucket, jobs are taken
// to be spread evenly. What is beyond the last bound counts as the last bound.
func (h Histogram) Quantile(q float64) (seconds float64, ok bool) {
	jobs := h.Jobs()
	if jobs == 0 {
		return 0, false
	}
	rank := min(max(q, 0), 1) * float64(jobs)
	var below float64
	for bucket, n := range h {
		if n == 0 {
			continue
		}
		low, high := edges(bucket)
		share := min((rank-below)/float64(n), 1)
		seconds = low + (high-low)*share
		if below += float64(n); below >= rank-rounding {
			break
		}
	}
	return seconds, true
}

// rounding is by how much a product of a share and a number of jobs may miss a whole number.
const rounding = 1e-6

// edges are where a bucket begins and ends.
func edges(bucket int) (low, high float64) {
	if bucket > 0 {
		low = bounds[min(bucket, len(bounds))-1]
	}
	return low, bounds[min(bucket, len(bounds)-1)]
}
