package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The view box, and the edges of the plot in it. It is small, so that labels stay legible at the width of a phone.
const (
	Width  = 400.0
	Height = 170.0
	left   = 46.0
	right  = Width - 8
	top    = 10.0
	bottom = Height - 22
	// labelRoom is how far a label of the time axis reaches to either side.
	labelRoom = 18.0
)

// Series is one line or area. Unknown values are NaN and leave a gap.
type Series struct {
	Class, Label string // the class of the shape, and of its key in the legend
	Values       []float64
	// Ceiling marks a line that may be far above the others. It is drawn only if it does not flatten them.
	Ceiling bool
}

// Plot is the input of a chart: stacked areas, and lines in front of them, each with one value per step of the time axis.
type Plot struct {
	ID, Title, Summary string
	Unit               Unit
	From, To           time.Time
	Areas, Lines       []Series
}

// Chart is a drawn plot.
type Chart struct {
	ID, Title, Summary string
	Left, Right, Base  float64 // the plot's edges
	X, Y               []Tick
	Areas, Lines       []Shape
	Bars               []Bar
	Legend             []Key
}

// Shape is a path.
type Shape struct{ Class, D string }

// Key is an entry of the legend.
type Key struct {
	Class, Label string
	Line         bool
}

// far is how many times higher than everything else a ceiling may be.
const far = 3

// Draw computes the shapes, the ticks and the legend.
func (p Plot) Draw() Chart {
	c := Chart{ID: p.ID, Title: p.Title, Summary: p.Summary, Left: left, Right: right, Base: bottom}
	stacks := stacked(p.Areas)
	most := highest(stacks)
	for _, line := range p.Lines {
		if !line.Ceiling {
			most = max(most, highest([]Series{line}))
		}
	}
	var lines []Series
	for _, line := range p.Lines {
		key := Key{Class: line.Class, Label: line.Label, Line: true}
		if reaches := highest([]Series{line}); line.Ceiling && most > 0 && reaches > far*most {
			key.Label += ", " + p.Unit.Label(math.Round(reaches)) + " (above this chart)"
		} else {
			lines, most = append(lines, line), max(most, reaches)
		}
		c.Legend = append(c.Legend, key)
	}
	upTo, step := p.Unit.axis(most)
	c.Y = valueTicks(p.Unit, upTo, step)
	c.X = placedTimes(p.From, p.To)
	for i, s := range stacks {
		below := make([]float64, len(s.Values))
		if i > 0 {
			below = stacks[i-1].Values
		}
		c.Areas = append(c.Areas, Shape{s.Class, area(below, s.Values, upTo)})
		c.Legend = append(c.Legend, Key{Class: s.Class, Label: s.Label})
	}
	for _, s := range lines {
		c.Lines = append(c.Lines, Shape{s.Class, line(s.Values, upTo)})
	}
	return c
}

// stacked adds each series to those below it. An unknown step is unknown for all series above.
func stacked(areas []Series) []Series {
	var all []Series
	for i, s := range areas {
		sum := Series{Class: s.Class, Label: s.Label, Values: make([]float64, len(s.Values))}
		for j, value := range s.Values {
			sum.Values[j] = value
			if i > 0 {
				sum.Values[j] += all[i-1].Values[j]
			}
		}
		all = append(all, sum)
	}
	return all
}

// highest is the highest known value; 0 without any.
func highest(series []Series) (most float64) {
	for _, s := range series {
		for _, value := range s.Values {
			if value > most { // NaN is not
				most = value
			}
		}
	}
	return most
}

func valueTicks(unit Unit, upTo, step float64) []Tick {
	var ticks []Tick
	for n := 0; float64(n)*step <= upTo*(1+1e-9); n++ {
		value := float64(n) * step
		ticks = append(ticks, Tick{At: rounded(y(value, upTo)), Text: unit.Label(value)})
	}
	return ticks
}

// placedTimes omits labels that would reach past the edges.
func placedTimes(from, to time.Time) []Tick {
	moments, layout := timeTicks(from, to)
	var ticks []Tick
	for _, t := range moments {
		at := left + (right-left)*float64(t.Sub(from))/float64(to.Sub(from))
		if at-labelRoom >= 0 && at+labelRoom <= Width {
			ticks = append(ticks, Tick{At: rounded(at), Text: t.Format(layout)})
		}
	}
	return ticks
}

// x is the middle of a step, y the height of a value.
func x(step, steps int) float64 { return left + (right-left)*(float64(step)+.5)/float64(steps) }

func y(value, upTo float64) float64 { return bottom - (bottom-top)*min(max(value/upTo, 0), 1) }

func rounded(at float64) float64 { return math.Round(at*10) / 10 }

// pen writes path data with one decimal.
type pen struct{ strings.Builder }

func (p *pen) to(command byte, x, y float64) {
	p.WriteByte(command)
	p.WriteString(strconv.FormatFloat(rounded(x), 'f', -1, 64))
	p.WriteByte(' ')
	p.WriteString(strconv.FormatFloat(rounded(y), 'f', -1, 64))
}

// spans are the runs of known values, from the first to the one after the last.
func spans(values []float64) (runs [][2]int) {
	begun := -1
	for i, value := range values {
		switch known := !math.IsNaN(value); {
		case known && begun < 0:
			begun = i
		case !known && begun >= 0:
			runs, begun = append(runs, [2]int{begun, i}), -1
		}
	}
	if begun >= 0 {
		runs = append(runs, [2]int{begun, len(values)})
	}
	return runs
}

// line joins known values. A single value between two gaps is a dot: a stroke without length has round ends.
func line(values []float64, upTo float64) string {
	var p pen
	for _, run := range spans(values) {
		for i := run[0]; i < run[1]; i++ {
			command := byte('L')
			if i == run[0] {
				command = 'M'
			}
			p.to(command, x(i, len(values)), y(values[i], upTo))
		}
		if run[1]-run[0] == 1 {
			p.WriteString("h0")
		}
	}
	return p.String()
}

// area fills the space between two lines. A run begins and ends half a step outside its values, so that a single step is visible.
func area(below, above []float64, upTo float64) string {
	var p pen
	steps := len(above)
	half := (right - left) / float64(max(steps, 1)) / 2
	for _, run := range spans(above) {
		first, last := run[0], run[1]-1
		p.to('M', x(first, steps)-half, y(above[first], upTo))
		for i := first; i <= last; i++ {
			p.to('L', x(i, steps), y(above[i], upTo))
		}
		p.to('L', x(last, steps)+half, y(above[last], upTo))
		p.to('L', x(last, steps)+half, y(below[last], upTo))
		for i := last; i >= first; i-- {
			p.to('L', x(i, steps), y(below[i], upTo))
		}
		p.to('L', x(first, steps)-half, y(below[first], upTo))
		p.WriteByte('Z')
	}
	return p.String()
}
