package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// minutes are samples of two pools at any minutes of a day, at most one for each.
func minutes(t *rapid.T) (samples []Sample) {
	seen := map[spot]bool{}
	number := rapid.Int64Range(0, 1000)
	for range rapid.IntRange(0, 40).Draw(t, "samples") {
		s := Sample{
			Pool: Pool{"runners", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool")}, Span: FineSpan, Minutes: 1,
			At:  noon.Add(time.Duration(rapid.IntRange(0, 24*60-1).Draw(t, "minute")) * time.Minute),
			Sum: Gauges{Queued: number.Draw(t, "queued"), Busy: number.Draw(t, "busy"), Idle: number.Draw(t, "idle"), Capacity: number.Draw(t, "capacity")},
		}
		s.PeakQueued, s.PeakBusy = s.Sum.Queued, s.Sum.Busy
		s.QueueTimes = Histogram{}.With(rapid.IntRange(0, 37).Draw(t, "bucket"), number.Draw(t, "jobs"))
		if at := (spot{s.Pool, s.At}); !seen[at] {
			seen[at] = true
			samples = append(samples, s)
		}
	}
	return samples
}

// Rolling up loses and invents nothing, and what was rolled up shows as what it was made of: in a series whose steps are whole spans.
func TestRollUp_ShowsAsTheMinutesDid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := minutes(t)
		rolled := RollUp(samples, CoarseSpan)
		for i, s := range rolled {
			require.Equal(t, s.At.Truncate(CoarseSpan), s.At)
			require.Equal(t, CoarseSpan, s.Span)
			require.LessOrEqual(t, s.Minutes, int64(15))
			if i > 0 {
				require.Negative(t, rolled[i-1].Pool.compare(s.Pool)*1000+rolled[i-1].At.Compare(s.At), "each pool and span once, in order")
			}
		}
		for _, pool := range []string{"a", "b"} {
			of := func(all []Sample) (own []Sample) {
				for _, s := range all {
					if s.Pool.Name == pool {
						own = append(own, s)
					}
				}
				return own
			}
			for _, w := range Windows() {
				now := noon.Add(24 * time.Hour).Add(-time.Second)
				require.Equal(t, w.Series(now, of(samples)), w.Series(now, of(rolled)), w.Name)
			}
		}
		require.Equal(t, rolled, RollUp(rolled, CoarseSpan), "once more changes nothing")
	})
}

// A series has each step once, whatever is known; a mean is between zero and the peak; unknown and zero differ.
func TestSeries_HasEachStepAndKeepsGaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(Windows()).Draw(t, "window")
		now := noon.Add(time.Duration(rapid.IntRange(0, 48*3600).Draw(t, "now")) * time.Second)
		samples := minutes(t)
		points := w.Series(now, samples)
		require.Len(t, points, int(w.Length/w.Step))
		from, to := w.Bounds(now)
		require.True(t, to.After(now) && !now.Add(w.Step).Before(to), "the last step is under way")
		var sampled, jobs, within, started int64
		for i, p := range points {
			require.Equal(t, from.Add(time.Duration(i)*w.Step), p.At)
			require.LessOrEqual(t, p.Queued, float64(p.PeakQueued))
			require.LessOrEqual(t, p.Busy, float64(p.PeakBusy))
			if p.Minutes == 0 {
				require.Zero(t, p.Queued+p.Busy+p.Idle+p.Starting+p.Capacity)
			}
			sampled, jobs = sampled+p.Minutes, jobs+p.QueueTimes.Jobs()
		}
		for _, s := range samples {
			if !s.At.Before(from) && s.At.Before(to) {
				within, started = within+1, started+s.QueueTimes.Jobs()
			}
		}
		require.Equal(t, []int64{within, started}, []int64{sampled, jobs})
	})
	points := Windows()[0].Series(noon, []Sample{{At: noon.Add(-time.Hour), Minutes: 2, Sum: Gauges{Busy: 3}, PeakBusy: 2}})
	require.InDelta(t, 1.5, points[len(points)-5].Busy, 1e-9)
}

func TestWindowByName(t *testing.T) {
	for name, length := range map[string]time.Duration{"": 24 * time.Hour, "24h": 24 * time.Hour, "14d": 14 * 24 * time.Hour} {
		w, known := WindowByName(name)
		require.True(t, known)
		require.Equal(t, length, w.Length)
		require.Zero(t, w.Length%w.Step)
		require.Zero(t, w.Step%CoarseSpan, "what is rolled up fits")
	}
	_, known := WindowByName("1y")
	require.False(t, known)
	require.GreaterOrEqual(t, MinutesKept, 24*time.Hour+CoarseSpan, "the window of 24 hours is of minutes")
}

// Every pool counts in the fleet's sample, also those beyond the bound, and those that are gone; only the first have samples of their own.
func TestMinutes_TheFleetIsTheSumOfAllPools(t *testing.T) {
	gauges := map[Pool]Gauges{}
	for n := range 5 {
		gauges[Pool{"runners", fmt.Sprint("p", n)}] = Gauges{Queued: 1, Busy: 2, Idle: 3, Starting: 4, Capacity: 10}
	}
	started := []Started{
		{Pool{"runners", "p0"}, noon.Add(-time.Minute), 3, 2}, {Pool{"runners", "p0"}, noon.Add(-time.Minute), 5, 1},
		{Pool{"runners", "p4"}, noon.Add(-2 * time.Minute), 1, 1}, {Pool{"runners", "gone"}, noon.Add(-2 * time.Minute), 1, 1},
	}
	by := map[spot]Sample{}
	for _, s := range Minutes(noon, gauges, started, 3) {
		require.Equal(t, FineSpan, s.Span)
		by[spot{s.Pool, s.At}] = s
	}
	require.Len(t, by, 3+2+2, "p0, p1 and the fleet, now; p0 and the fleet a minute before, gone and the fleet two")
	fleet := by[spot{Pool{}, noon}]
	require.Equal(t, Gauges{Queued: 5, Busy: 10, Idle: 15, Starting: 20, Capacity: 50}, fleet.Sum)
	require.Equal(t, []int64{1, 5, 10}, []int64{fleet.Minutes, fleet.PeakQueued, fleet.PeakBusy})
	require.Equal(t, Histogram{0, 0, 0, 2, 0, 1}, by[spot{Pool{}, noon.Add(-time.Minute)}].QueueTimes)
	require.Equal(t, Histogram{0, 2}, by[spot{Pool{}, noon.Add(-2 * time.Minute)}].QueueTimes)
	require.Zero(t, by[spot{Pool{}, noon.Add(-2 * time.Minute)}].Minutes, "queue times alone are known")
	require.Contains(t, by, spot{Pool{"runners", "p1"}, noon})
	require.NotContains(t, by, spot{Pool{"runners", "p2"}, noon}, "gone comes before it by name")

	require.Empty(t, Minutes(noon, nil, nil, 3), "what could not be read is no sample")
	require.Equal(t, []Sample{{At: noon, Span: FineSpan, Minutes: 1}}, Minutes(noon, map[Pool]Gauges{}, nil, 3), "a fleet without pools is one")
}
