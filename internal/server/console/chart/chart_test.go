package chart

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn are values with gaps.
func drawn(steps int, most float64) *rapid.Generator[[]float64] {
	value := rapid.Custom(func(t *rapid.T) float64 {
		if rapid.IntRange(0, 4).Draw(t, "gap") == 0 {
			return math.NaN()
		}
		return rapid.Float64Range(0, most).Draw(t, "value")
	})
	return rapid.SliceOfN(value, steps, steps)
}

var numbers = regexp.MustCompile(`-?[0-9.]+`)

// coordinates are those of a path that is written in absolute commands.
func coordinates(t require.TestingT, d string) (points [][2]float64) {
	for _, pair := range regexp.MustCompile(`[ML][^MLZh]+`).FindAllString(d, -1) {
		both := numbers.FindAllString(pair, -1)
		require.Len(t, both, 2, d)
		x, err := strconv.ParseFloat(both[0], 64)
		require.NoError(t, err)
		y, err := strconv.ParseFloat(both[1], 64)
		require.NoError(t, err)
		points = append(points, [2]float64{x, y})
	}
	return points
}

// Whatever the values are, everything drawn is within the plot, in whole and finite numbers, and each run of known values is one part of a path.
func TestDraw_StaysWithinThePlotAndKeepsGaps(t *testing.T) {
	from := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.IntRange(1, 120).Draw(t, "steps")
		most := math.Pow(10, rapid.Float64Range(-4, 7).Draw(t, "magnitude"))
		plot := Plot{
			ID: "p", Unit: Unit(rapid.IntRange(0, 2).Draw(t, "unit")), From: from, To: from.Add(time.Duration(steps) * 15 * time.Minute),
			Areas: []Series{{Class: "a", Values: drawn(steps, most).Draw(t, "a")}, {Class: "b", Values: drawn(steps, most).Draw(t, "b")}},
			Lines: []Series{{Class: "c", Values: drawn(steps, most).Draw(t, "c")}, {Class: "d", Values: drawn(steps, 20*most).Draw(t, "d"), Ceiling: true}},
		}
		c := plot.Draw()
		require.Len(t, c.Areas, 2)
		require.Len(t, c.Legend, 4)
		for _, shape := range append(c.Areas, c.Lines...) {
			require.NotContains(t, shape.D, "N", "NaN")
			for _, at := range coordinates(t, shape.D) {
				require.True(t, at[0] >= c.Left-.1 && at[0] <= c.Right+.1 && at[1] >= top-.1 && at[1] <= c.Base+.1, "%v in %s", at, shape.D)
			}
		}
		require.Equal(t, len(spans(plot.Lines[0].Values)), strings.Count(c.Lines[0].D, "M"))
		require.Equal(t, len(spans(plot.Areas[0].Values)), strings.Count(c.Areas[0].D, "Z"))
		require.LessOrEqual(t, len(c.Y), mostIntervals+2)
		for i, tick := range c.Y {
			require.NotEmpty(t, tick.Text)
			if i > 0 {
				require.Less(t, tick.At, c.Y[i-1].At, "larger values are higher")
				require.NotEqual(t, c.Y[i-1].Text, tick.Text)
			}
		}
	})
}

// An axis begins at zero, ends at or above the highest value with a label, and wastes less than a step.
func TestAxis_ReachesTheHighestValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := Unit(rapid.IntRange(0, 2).Draw(t, "unit"))
		most := math.Pow(10, rapid.Float64Range(-3, 8).Draw(t, "magnitude"))
		upTo, step := unit.axis(most)
		require.GreaterOrEqual(t, upTo, most*(1-1e-6))
		require.Less(t, upTo-most, step*(1+1e-6))
		require.LessOrEqual(t, upTo/step, mostIntervals+1e-6)
		if unit == Count {
			require.InDelta(t, math.Round(step), step, 1e-6, "there is no half of a runner")
		}
	})
	for _, nothing := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		upTo, step := Seconds.axis(nothing)
		require.Equal(t, []float64{1, .25}, []float64{upTo, step})
	}
}

// A ceiling that would flatten the rest is in the legend; one that would not, or that stands alone, is drawn.
func TestDraw_ACeilingFlattensNothing(t *testing.T) {
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	plot := func(busy, capacity float64) Chart {
		return Plot{
			From: now, To: now.Add(time.Hour), Areas: []Series{{Class: "busy", Label: "busy", Values: []float64{busy}}},
			Lines: []Series{{Class: "capacity", Label: "capacity", Values: []float64{capacity}, Ceiling: true}},
		}.Draw()
	}
	high := plot(10, 1000)
	require.Empty(t, high.Lines)
	require.Equal(t, Key{Class: "capacity", Label: "capacity, 1000 (above this chart)", Line: true}, high.Legend[0])
	require.Equal(t, "15", plot(10, 12).Y[len(plot(10, 12).Y)-1].Text)
	require.Len(t, plot(10, 12).Lines, 1)
	require.Len(t, plot(0, 1000).Lines, 1, "there is nothing that it could flatten")
}

// One value between two gaps is seen.
func TestLine_OneValueIsADot(t *testing.T) {
	nan := math.NaN()
	require.Equal(t, "M219 10h0", line([]float64{nan, 2, nan}, 2))
	require.Empty(t, line([]float64{nan, nan}, 2))
	require.Empty(t, area([]float64{0}, []float64{nan}, 2))
	require.True(t, strings.HasPrefix(area([]float64{0, 0, 0}, []float64{nan, 2, nan}, 2), "M161.3 10L219 10L276.7 10L276.7 148"))
}

func TestLabels(t *testing.T) {
	for want, seconds := range map[string]float64{
		"0": 0, "250ms": .25, "1.5s": 1.5, "45s": 45, "1m": 60, "1m30s": 90, "10m": 600, "1h": 3600, "1h30m": 5400, "2d": 172800, "1d12h": 129600,
	} {
		require.Equal(t, want, Seconds.Label(seconds))
	}
	for want, n := range map[string]float64{"0": 0, "7": 7, "2.5": 2.5, "9999": 9999, "12k": 12_000, "2500k": 2_500_000} {
		require.Equal(t, want, Count.Label(n))
	}
	require.Equal(t, []string{"0", "1.5h"}, []string{Hours.Label(0), Hours.Label(1.5)})
}

// Times are labelled at round moments in UTC, and a label never reaches past the edge.
func TestPlacedTimes_AreRoundAndFit(t *testing.T) {
	texts := func(from time.Time, length time.Duration) (all []string) {
		for _, tick := range placedTimes(from, from.Add(length)) {
			require.GreaterOrEqual(t, tick.At, labelRoom)
			require.LessOrEqual(t, tick.At, Width-labelRoom)
			all = append(all, tick.Text)
		}
		return all
	}
	require.Equal(t, []string{"12:00", "18:00", "00:00", "06:00"}, texts(time.Date(2026, 11, 25, 9, 15, 0, 0, time.UTC), 24*time.Hour))
	fortnight := texts(time.Date(2026, 11, 12, 12, 0, 0, 0, time.UTC), 14*24*time.Hour)
	require.Len(t, fortnight, 7)
	require.Regexp(t, `^Nov \d+$`, fortnight[0])
}

// Bars are within the plot, in order, and have labels as far as there is room.
func TestColumns_FitWhateverTheirNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []Column
		for n := range rapid.IntRange(0, 70).Draw(t, "bars") {
			columns = append(columns, Column{Label: strconv.Itoa(n), Value: rapid.Float64Range(0, 1e5).Draw(t, "value")})
		}
		c := Columns("id", "", "", Hours, columns)
		require.Len(t, c.Bars, len(columns))
		require.LessOrEqual(t, len(c.X), mostColumnLabels)
		edge := left
		for _, bar := range c.Bars {
			require.GreaterOrEqual(t, bar.X, edge-.15)
			edge = bar.X + bar.Wide
			require.Positive(t, bar.Wide)
			require.True(t, bar.Y >= top-.1 && bar.High >= 0 && bar.Y+bar.High <= bottom+.15, "%+v", bar)
		}
		require.LessOrEqual(t, edge, right+.15)
	})
}

// Spans follow one another within the whole, each as wide as its share; a short one is visible, and one without length is not.
func TestSpans_AreSharesOfTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Float64Range(-1, 1e6), 0, 9).Draw(t, "lengths")
		var total float64
		for _, length := range lengths {
			total += max(length, 0)
		}
		start := 0.0
		for i, span := range Spans(lengths) {
			require.GreaterOrEqual(t, span.Start, start)
			start = span.Start
			require.LessOrEqual(t, span.Start+span.Wide, 100+leastWide)
			if lengths[i] <= 0 {
				require.Zero(t, span.Wide)
			} else {
				require.InDelta(t, max(100*lengths[i]/total, leastWide), span.Wide, 1e-6)
			}
		}
	})
	require.Equal(t, []Span{{0, 25}, {25, 75}, {100 - leastWide, 0}}, Spans([]float64{1, 3, 0}))
	require.Equal(t, []float64{0, 50, 100, leastWide}, []float64{Share(0, 4), Share(2, 4), Share(9, 4), Share(1e-9, 4)})
}
