package chart

import (
	"math"
	"strconv"
	"time"
)

// Unit is what a vertical axis counts.
type Unit int

// The units.
const (
	Count   Unit = iota // whole things
	Seconds             // durations
	Hours
)

// Tick is a place on an axis and its label.
type Tick struct {
	At   float64 // in the units of the view box
	Text string
}

// mostIntervals is the maximum number of labels on an axis, without the one at zero.
const mostIntervals = 4

// durations are the steps of axes with durations, in seconds.
var durations = []float64{.1, .25, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400}

// stepFor returns the distance between two labels of an axis that reaches at least most.
func (u Unit) stepFor(most float64) float64 {
	if u == Seconds {
		for _, step := range durations {
			if most <= mostIntervals*step {
				return step
			}
		}
		const day = 86400
		return day * math.Ceil(most/mostIntervals/day)
	}
	least := most / mostIntervals
	magnitude := math.Pow(10, math.Floor(math.Log10(least)))
	step := 10 * magnitude
	for _, factor := range []float64{1, 2, 5} {
		if least <= factor*magnitude {
			step = factor * magnitude
			break
		}
	}
	if u == Count {
		return max(step, 1)
	}
	return step
}

// axis returns the top of an axis, which has a label, and the distance of its labels. Without a positive value it reaches to 1.
func (u Unit) axis(most float64) (top, step float64) {
	if !(most > 0) || math.IsInf(most, 0) { // NaN, too
		most = 1
	}
	step = u.stepFor(most)
	return step * max(math.Ceil(most/step-1e-9), 1), step
}

// Label writes a value as an axis does.
func (u Unit) Label(value float64) string {
	switch u {
	case Seconds:
		return durationLabel(value)
	case Hours:
		if value == 0 {
			return "0"
		}
		return number(value) + "h"
	default:
		return number(value)
	}
}

func number(value float64) string {
	switch {
	case value >= 10_000:
		return strconv.FormatFloat(value/1000, 'f', -1, 64) + "k"
	case value > 0 && value < .01:
		return strconv.FormatFloat(value, 'g', 2, 64)
	}
	return strconv.FormatFloat(math.Round(value*1000)/1000, 'f', -1, 64)
}

// durationLabel writes the two largest units that are not zero: 250ms, 1m30s, 2h.
func durationLabel(seconds float64) string {
	whole := func(n float64) string { return strconv.FormatFloat(math.Floor(n), 'f', 0, 64) }
	two := func(large string, rest float64, small string) string {
		if math.Floor(rest) == 0 {
			return large
		}
		return large + whole(rest) + small
	}
	switch {
	case seconds == 0:
		return "0"
	case seconds < 1:
		return strconv.FormatFloat(math.Round(seconds*1000), 'f', 0, 64) + "ms"
	case seconds < 60:
		return strconv.FormatFloat(math.Round(seconds*10)/10, 'f', -1, 64) + "s"
	case seconds < 3600:
		return two(whole(seconds/60)+"m", math.Mod(seconds, 60), "s")
	case seconds < 86400:
		return two(whole(seconds/3600)+"h", math.Mod(seconds, 3600)/60, "m")
	default:
		return two(whole(seconds/86400)+"d", math.Mod(seconds, 86400)/3600, "h")
	}
}

// timeTicks returns the labelled times of an axis, in UTC: hours for spans of up to two days, days for longer ones.
func timeTicks(from, to time.Time) (at []time.Time, layout string) {
	step, layout := 6*time.Hour, "15:04"
	if to.Sub(from) > 48*time.Hour {
		step, layout = 24*time.Hour, "Jan 2"
		for to.Sub(from) > 7*step {
			step *= 2
		}
	}
	first := from.UTC().Truncate(step)
	if first.Before(from) {
		first = first.Add(step)
	}
	for t := first; !t.After(to); t = t.Add(step) {
		at = append(at, t)
	}
	return at, layout
}
