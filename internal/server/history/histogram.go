package history

import (
	"math"
	"slices"
	"sort"
)

// Histogram counts jobs by bucket of their queue time. Bucket 0 ends at the first of Bounds; bucket i begins at bound i-1. Empty buckets
// at the end may be omitted. Histograms add up, so that the quantiles of a span come from the histograms of its parts.
type Histogram []int64

// Two buckets per doubling, from 0.25 s to 18 h: a quantile is within 41 % of the true value.
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

// Bounds returns where the buckets begin, in seconds, from the second bucket on. They never change: stored rows count by them.
func Bounds() []float64 { return slices.Clone(bounds) }

// Bucket returns the bucket of a queue time.
func Bucket(seconds float64) int {
	return sort.Search(len(bounds), func(i int) bool { return bounds[i] > seconds })
}

// With adds jobs to a bucket. It ignores buckets that do not exist.
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

// Jobs is the number of jobs.
func (h Histogram) Jobs() (jobs int64) {
	for _, n := range h {
		jobs += n
	}
	return jobs
}

// Quantile returns a quantile of the queue time in seconds, and false without jobs. It interpolates within the bucket. Queue times beyond
// the last bound count as the last bound.
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

// rounding is the tolerance for the product of a quantile and a number of jobs.
const rounding = 1e-6

// edges returns where a bucket begins and ends.
func edges(bucket int) (low, high float64) {
	if bucket > 0 {
		low = bounds[min(bucket, len(bounds))-1]
	}
	return low, bounds[min(bucket, len(bounds)-1)]
}
