package history

import "time"

// Window is a time range up to now, and its resolution.
type Window struct {
	Name         string
	Length, Step time.Duration
}

// Windows returns the supported windows; the first is the default. Steps are aligned to midnight UTC.
func Windows() []Window {
	return []Window{
		{Name: "24h", Length: 24 * time.Hour, Step: CoarseSpan},
		{Name: "14d", Length: 14 * 24 * time.Hour, Step: 4 * time.Hour},
	}
}

// WindowByName finds a window; the default if the name is empty.
func WindowByName(name string) (Window, bool) {
	for _, w := range Windows() {
		if name == w.Name || name == "" {
			return w, true
		}
	}
	return Window{}, false
}

// Bounds returns the begin and end of the window: whole steps, the last of which is not over.
func (w Window) Bounds(now time.Time) (from, to time.Time) {
	to = now.UTC().Truncate(w.Step).Add(w.Step)
	return to.Add(-w.Length), to
}

// Point is one step of a series.
type Point struct {
	At time.Time
	// Minutes is the number of sampled minutes; 0: the gauges are unknown.
	Minutes int64
	// Means of the sampled minutes.
	Queued, Busy, Idle, Starting, Capacity float64
	PeakQueued, PeakBusy                   int64
	QueueTimes                             Histogram
}

// Series returns one point per step of the window, also for steps without samples.
func (w Window) Series(now time.Time, samples []Sample) []Point {
	from, _ := w.Bounds(now)
	steps := make([]Sample, int(w.Length/w.Step))
	for _, s := range samples {
		if at := s.At.Sub(from); at >= 0 && at < w.Length {
			step := int(at / w.Step)
			steps[step] = steps[step].plus(s)
		}
	}
	points := make([]Point, len(steps))
	for i, s := range steps {
		mean := func(sum int64) float64 { return float64(sum) / float64(max(s.Minutes, 1)) }
		points[i] = Point{
			At: from.Add(time.Duration(i) * w.Step), Minutes: s.Minutes,
			Queued: mean(s.Sum.Queued), Busy: mean(s.Sum.Busy), Idle: mean(s.Sum.Idle), Starting: mean(s.Sum.Starting), Capacity: mean(s.Sum.Capacity),
			PeakQueued: s.PeakQueued, PeakBusy: s.PeakBusy, QueueTimes: s.QueueTimes,
		}
	}
	return points
}
