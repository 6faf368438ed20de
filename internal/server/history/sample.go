package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Pool names a pool of runners. The zero Pool is the whole fleet.
type Pool struct{ Namespace, Name string }

func (p Pool) compare(other Pool) int {
	return cmp.Or(cmp.Compare(p.Namespace, other.Namespace), cmp.Compare(p.Name, other.Name))
}

// Gauges are the numbers of a pool at one time, or sums of them.
type Gauges struct {
	Queued   int64 // jobs that would start now if there were runners
	Busy     int64 // runners with a job
	Idle     int64 // runners that can take one
	Starting int64
	Capacity int64 // the most runners that there may be
}

func (g Gauges) plus(other Gauges) Gauges {
	return Gauges{
		Queued: g.Queued + other.Queued, Busy: g.Busy + other.Busy, Idle: g.Idle + other.Idle,
		Starting: g.Starting + other.Starting, Capacity: g.Capacity + other.Capacity,
	}
}

// The spans of stored samples.
const (
	FineSpan   = time.Minute
	CoarseSpan = 15 * time.Minute
)

// Sample is the history of a pool in one span. Samples add up: the sample of a longer span is the sum of its parts.
type Sample struct {
	Pool Pool
	At   time.Time // the begin of the span
	Span time.Duration
	// Minutes is the number of sampled minutes, and Sum the sum of their gauges. With 0, only queue times are known.
	Minutes    int64
	Sum        Gauges
	PeakQueued int64 // the highest of one minute
	PeakBusy   int64
	// QueueTimes are those of the jobs that started in the span.
	QueueTimes Histogram
}

// plus adds another sample. Pool, At and Span stay.
func (s Sample) plus(other Sample) Sample {
	s.Minutes += other.Minutes
	s.Sum = s.Sum.plus(other.Sum)
	s.PeakQueued, s.PeakBusy = max(s.PeakQueued, other.PeakQueued), max(s.PeakBusy, other.PeakBusy)
	s.QueueTimes = s.QueueTimes.Plus(other.QueueTimes)
	return s
}

// spot identifies a sample.
type spot struct {
	pool Pool
	at   time.Time
}

// RollUp adds samples up to longer spans, per pool. The result is ordered by pool and time.
func RollUp(samples []Sample, span time.Duration) []Sample {
	sums := map[spot]Sample{}
	for _, s := range samples {
		at := spot{s.Pool, s.At.UTC().Truncate(span)}
		sum, known := sums[at]
		if !known {
			sum = Sample{Pool: s.Pool, At: at.at, Span: span}
		}
		sums[at] = sum.plus(s)
	}
	return ordered(sums)
}

func ordered(samples map[spot]Sample) []Sample {
	return slices.SortedFunc(maps.Values(samples), func(a, b Sample) int {
		return cmp.Or(a.Pool.compare(b.Pool), a.At.Compare(b.At))
	})
}

// Started counts the jobs that started on a pool's runners in one minute, with queue times in one bucket.
type Started struct {
	Pool   Pool
	At     time.Time // the minute
	Bucket int
	Jobs   int64
}

// Minutes returns the samples that one pass writes: the gauges of its minute, and the queue times of earlier minutes. All pools count
// towards the fleet; the first mostPools by name have samples of their own. Gauges are nil if they could not be read.
func Minutes(minute time.Time, gauges map[Pool]Gauges, started []Started, mostPools int) []Sample {
	own := sampled(gauges, started, mostPools)
	samples := map[spot]Sample{}
	add := func(s Sample) {
		at := spot{s.Pool, s.At}
		sum, known := samples[at]
		if !known {
			sum = Sample{Pool: s.Pool, At: s.At, Span: FineSpan}
		}
		samples[at] = sum.plus(s)
	}
	if gauges != nil {
		var all Gauges
		for pool, g := range gauges {
			all = all.plus(g)
			if own[pool] {
				add(Sample{Pool: pool, At: minute, Minutes: 1, Sum: g, PeakQueued: g.Queued, PeakBusy: g.Busy})
			}
		}
		add(Sample{At: minute, Minutes: 1, Sum: all, PeakQueued: all.Queued, PeakBusy: all.Busy})
	}
	for _, s := range started {
		counted := Sample{At: s.At.UTC(), QueueTimes: Histogram{}.With(s.Bucket, s.Jobs)}
		add(counted)
		if own[s.Pool] {
			counted.Pool = s.Pool
			add(counted)
		}
	}
	return ordered(samples)
}

// sampled returns the pools with samples of their own.
func sampled(gauges map[Pool]Gauges, started []Started, most int) map[Pool]bool {
	pools := map[Pool]bool{}
	for pool := range gauges {
		pools[pool] = true
	}
	for _, s := range started {
		pools[s.Pool] = true
	}
	names := slices.SortedFunc(maps.Keys(pools), Pool.compare)
	for _, pool := range names[min(most, len(names)):] {
		delete(pools, pool)
	}
	return pools
}
