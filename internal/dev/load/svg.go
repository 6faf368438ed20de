package load

import (
	"fmt"
	"io"
	"math"

	"github.com/bullpen-ci/bullpen/internal/dev/plot"
)

// The plot's measures, in pixels.
const (
	plotWidth = 960.0
	margin    = 56.0
	topHeight = 260.0
	topAt     = 96.0
	panelAt   = topAt + topHeight + 84
	panelHigh = 120.0
	panelStep = panelHigh + 76
	perRow    = 3
	// shortest wait that can be distinguished from none over time, in seconds: GitHub's times are whole ones.
	shortest = 0.1
)

const (
	light = "--bar: #2f6fb5; --p50: #2f6fb5; --p90: #b35900; --p99: #b3261e"
	dark  = "--bar: #6aa8e8; --p50: #6aa8e8; --p90: #f0a04b; --p99: #f2807a"
	rules = `  .bar { fill: var(--bar) }
  .line { fill: none; stroke-width: 2 } .p50 { stroke: var(--p50) } .p90 { stroke: var(--p90); stroke-dasharray: 7 3 } .p99 { stroke: var(--p99); stroke-dasharray: 2 3 }
  .dot50 { fill: var(--p50) } .dot90 { fill: var(--p90) } .dot99 { fill: var(--p99) }
`
)

type drawing struct{ *plot.Drawing }

// SVG draws the wait over time and a histogram of each stage.
func SVG(w io.Writer, r Result) error {
	rows := (len(r.Stages) + perRow - 1) / perRow
	height := panelAt + float64(rows)*panelStep
	d := drawing{plot.New(plot.Frame{
		Width: plotWidth, Height: height, Margin: margin, Label: "Latency of jobs", Title: "bullpen dev load", Light: light, Dark: dark, Rules: rules,
		Sentence: fmt.Sprintf("%s, seed %d: %d jobs in %d runs submitted in %s, %d ended",
			r.Shape, r.Seed, r.SubmittedJobs, r.SubmittedRuns, Seconds(r.SubmitSeconds), r.Ended),
	})}
	d.Text(plotWidth-margin, 56, "faint small", "end", "%s", Caveat)
	d.overTime(r.Series)
	for i, stage := range r.Stages {
		wide := (plotWidth - 2*margin - (perRow-1)*36) / perRow
		d.histogram(margin+float64(i%perRow)*(wide+36), panelAt+float64(i/perRow)*panelStep, wide, stage)
	}
	_, err := io.WriteString(w, d.End())
	return err
}

// overTime draws percentiles by a logarithmic scale.
func (d drawing) overTime(series []Point) {
	d.Text(margin, topAt-16, "head", "start", "%s", "wait, by the time of queueing")
	if len(series) == 0 {
		d.Text(margin, topAt+24, "faint", "start", "%s", "No job has begun.")
		return
	}
	least, most, last := math.Inf(1), 0.0, series[len(series)-1].After
	for _, p := range series {
		least, most = min(least, p.P50), max(most, p.P99)
	}
	low := math.Floor(math.Log10(max(least, shortest)))
	high := max(low+1, math.Ceil(math.Log10(max(most, shortest))))
	y := func(s float64) float64 {
		at := min(1, max(0, (math.Log10(max(s, shortest))-low)/(high-low)))
		return topAt + topHeight*(1-at)
	}
	left, right := margin, plotWidth-margin-24
	x := func(after float64) float64 { return left + (right-left)*after/last }
	for power := low; power <= high; power++ {
		for _, step := range []float64{1, 2, 5} {
			value := step * math.Pow(10, power)
			if step > 1 && (power == high || high-low > 2) {
				continue
			}
			d.Grid(left, y(value), right, y(value))
			d.Text(left-6, y(value)+4, "faint", "end", "%s", Seconds(value))
		}
	}
	for i := 0; i <= 4; i++ {
		after := last * float64(i) / 4
		d.Text(x(after), topAt+topHeight+18, "faint", "middle", "%s", Seconds(after))
	}
	for _, line := range []struct {
		class, name string
		of          func(Point) float64
	}{
		{"50", "p50", func(p Point) float64 { return p.P50 }}, {"90", "p90", func(p Point) float64 { return p.P90 }},
		{"99", "p99", func(p Point) float64 { return p.P99 }},
	} {
		d.WriteString(`<path class="line p` + line.class + `" d="`)
		for i, p := range series {
			fmt.Fprintf(d, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(p.After), y(line.of(p)))
		}
		d.WriteString("\"/>\n")
		if len(series) == 1 { // a line of one point cannot be seen
			fmt.Fprintf(d, `<circle class="dot%s" cx="%.1f" cy="%.1f" r="4"/>`+"\n", line.class, x(series[0].After), y(line.of(series[0])))
		}
	}
	d.legend(right)
}

// legend names the lines above the plot, where none of them runs.
func (d drawing) legend(right float64) {
	for i, class := range []string{"50", "90", "99"} {
		at := right - float64(2-i)*72
		fmt.Fprintf(d, `<path class="line p%s" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", class, at-56, topAt-20, at-28, topAt-20)
		d.Text(at-24, topAt-16, "", "start", "%s", "p"+class)
	}
}

func (d drawing) histogram(x, y, wide float64, stage Stage) {
	d.Text(x, y-24, "head", "start", "%s", stage.Name)
	d.Text(x, y-8, "faint small", "start", "%s", fmt.Sprintf("%d jobs, p50 %s, p99 %s, max %s", stage.Count, Seconds(stage.P50), Seconds(stage.P99), Seconds(stage.Max)))
	most := 1
	for _, bucket := range stage.Histogram {
		most = max(most, bucket.Count)
	}
	step := wide / float64(max(len(stage.Histogram), 4))
	every := (len(stage.Histogram) + 3) / 4 // what labels have room for
	for i, bucket := range stage.Histogram {
		high := panelHigh * float64(bucket.Count) / float64(most)
		at := x + float64(i)*step
		fmt.Fprintf(d, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>`, at+1, y+panelHigh-high, max(1, step-2), high)
		d.Escaped("up to %s: %d jobs", Seconds(bucket.UpTo), bucket.Count)
		d.WriteString("</title></rect>\n")
		if i%every == 0 {
			d.Text(at+step/2, y+panelHigh+14, "faint small", "middle", "%s", "≤"+Seconds(bucket.UpTo))
		}
	}
	d.Grid(x, y+panelHigh, x+wide, y+panelHigh)
}
