package chart

// Column is one bar before it is drawn.
type Column struct {
	Label string // under the bar, if there is room
	Says  string // tooltip
	Value float64
}

// Bar is a rectangle.
type Bar struct {
	X, Y, Wide, High float64
	Says             string
}

// mostColumnLabels is how many labels fit under the bars.
const mostColumnLabels = 10

// Columns draws vertical bars.
func Columns(id, title, summary string, unit Unit, columns []Column) Chart {
	c := Chart{ID: id, Title: title, Summary: summary, Left: left, Right: right, Base: bottom}
	var most float64
	for _, column := range columns {
		most = max(most, column.Value)
	}
	upTo, step := unit.axis(most)
	c.Y = valueTicks(unit, upTo, step)
	each := (right - left) / float64(max(len(columns), 1))
	gap := min(each/5, 4)
	every := (len(columns) + mostColumnLabels - 1) / mostColumnLabels
	for i, column := range columns {
		at := left + float64(i)*each
		height := y(column.Value, upTo)
		c.Bars = append(c.Bars, Bar{X: rounded(at + gap/2), Y: rounded(height), Wide: rounded(each - gap), High: rounded(bottom - height), Says: column.Says})
		if middle := at + each/2; i%every == 0 && middle+labelRoom <= Width {
			c.X = append(c.X, Tick{At: rounded(middle), Text: column.Label})
		}
	}
	return c
}

// Span is a part of a whole, in percent.
type Span struct{ Start, Wide float64 }

// leastWide is the minimum width of a span that is not empty, so that it is visible.
const leastWide = .4

// Spans places lengths one after another, as parts of their sum.
func Spans(lengths []float64) []Span {
	var total float64
	for _, length := range lengths {
		total += max(length, 0)
	}
	spans := make([]Span, len(lengths))
	var reached float64
	if total == 0 {
		return spans
	}
	for i, length := range lengths {
		spans[i].Start = min(100*reached/total, 100-leastWide)
		if length > 0 {
			spans[i].Wide = max(100*length/total, leastWide)
			reached += length
		}
	}
	return spans
}

// Share is a value in percent of most.
func Share(value, most float64) float64 {
	if value <= 0 || most <= 0 {
		return 0
	}
	return max(100*min(value/most, 1), leastWide)
}
