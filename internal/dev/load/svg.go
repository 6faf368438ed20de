package load

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
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
	// shortest wait that is told from none over time, in seconds: GitHub's times are whole ones.
	shortest = 0.1
)

// plotStyle follows the reader's preference. The three lines differ in brightness and dashes, too: not everybody tells colours apart.
const plotStyle = `
  :root { --ground: #ffffff; --ink: #1b1f24; --faint: #59636e; --grid: #d9dee3; --bar: #2f6fb5; --p50: #2f6fb5; --p90: #b35900; --p99: #b3261e }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #14181d; --ink: #e8ecf0; --faint: #a3adb8; --grid: #333b44; --bar: #6aa8e8; --p50: #6aa8e8; --p90: #f0a04b; --p99: #f2807a }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--ink) }
  .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 } .faint { fill: var(--faint) } .small { font-size: 10px }
  .ground { fill: var(--ground) } .grid { stroke: var(--grid); fill: none } .bar { fill: var(--bar) }
  .line { fill: none; stroke-width: 2 } .p50 { stroke: var(--p50) } .p90 { stroke: var(--p90); stroke-dasharray: 7 3 } .p99 { stroke: var(--p99); stroke-dasharray: 2 3 }
  .dot50 { fill: var(--p50) } .dot90 { fill: var(--p90) } .dot99 { fill: var(--p99) }
`

// drawing collects elements.
type drawing struct{ b strings.Builder }

func (d *drawing) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(&d.b, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">`, x, y, class, anchor)
	_ = xml.EscapeText(&d.b, []byte(text)) // a strings.Builder takes everything
	d.b.WriteString("</text>\n")
}

func (d *drawing) grid(x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<path class="grid" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", x1, y1, x2, y2)
}

// SVG draws the wait over time and a histogram of each stage.
func SVG(w io.Writer, r Result) error {
	rows := (len(r.Stages) + perRow - 1) / perRow
	height := panelAt + float64(rows)*panelStep
	d := &drawing{}
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="Latency of jobs">`+"\n<style>%s</style>\n",
		plotWidth, height, plotWidth, height, plotStyle)
	fmt.Fprintf(&d.b, `<rect class="ground" width="%.0f" height="%.0f"/>`+"\n", plotWidth, height)
	d.text(margin, 34, "title", "start", "bullpen dev load")
	d.text(margin, 56, "faint", "start", fmt.Sprintf("%s, seed %d: %d jobs in %d runs submitted in %s, %d ended",
		r.Shape, r.Seed, r.SubmittedJobs, r.SubmittedRuns, Seconds(r.SubmitSeconds), r.Ended))
	d.text(plotWidth-margin, 56, "faint small", "end", Caveat)
	d.overTime(r.Series)
	for i, stage := range r.Stages {
		wide := (plotWidth - 2*margin - (perRow-1)*36) / perRow
		d.histogram(margin+float64(i%perRow)*(wide+36), panelAt+float64(i/perRow)*panelStep, wide, stage)
	}
	d.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, d.b.String())
	return err
}

// overTime draws percentiles by a logarithmic scale.
func (d *drawing) overTime(series []Point) {
	d.text(margin, topAt-16, "head", "start", "wait, by the time of queueing")
	if len(series) == 0 {
		d.text(margin, topAt+24, "faint", "start", "No job has begun.")
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
			d.grid(left, y(value), right, y(value))
			d.text(left-6, y(value)+4, "faint", "end", Seconds(value))
		}
	}
	for i := 0; i <= 4; i++ {
		after := last * float64(i) / 4
		d.text(x(after), topAt+topHeight+18, "faint", "middle", Seconds(after))
	}
	for _, line := range []struct {
		class, name string
		of          func(Point) float64
	}{
		{"50", "p50", func(p Point) float64 { return p.P50 }}, {"90", "p90", func(p Point) float64 { return p.P90 }},
		{"99", "p99", func(p Point) float64 { return p.P99 }},
	} {
		d.b.WriteString(`<path class="line p` + line.class + `" d="`)
		for i, p := range series {
			fmt.Fprintf(&d.b, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(p.After), y(line.of(p)))
		}
		d.b.WriteString("\"/>\n")
		if len(series) == 1 { // a line of one point cannot be seen
			fmt.Fprintf(&d.b, `<circle class="dot%s" cx="%.1f" cy="%.1f" r="4"/>`+"\n", line.class, x(series[0].After), y(line.of(series[0])))
		}
	}
	d.legend(right)
}

// legend names the lines above the plot, where none of them runs.
func (d *drawing) legend(right float64) {
	for i, class := range []string{"50", "90", "99"} {
		at := right - float64(2-i)*72
		fmt.Fprintf(&d.b, `<path class="line p%s" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", class, at-56, topAt-20, at-28, topAt-20)
		d.text(at-24, topAt-16, "", "start", "p"+class)
	}
}

func (d *drawing) histogram(x, y, wide float64, stage Stage) {
	d.text(x, y-24, "head", "start", stage.Name)
	d.text(x, y-8, "faint small", "start", fmt.Sprintf("%d jobs, p50 %s, p99 %s, max %s", stage.Count, Seconds(stage.P50), Seconds(stage.P99), Seconds(stage.Max)))
	most := 1
	for _, bucket := range stage.Histogram {
		most = max(most, bucket.Count)
	}
	step := wide / float64(max(len(stage.Histogram), 4))
	every := (len(stage.Histogram) + 3) / 4 // what labels have room for
	for i, bucket := range stage.Histogram {
		high := panelHigh * float64(bucket.Count) / float64(most)
		at := x + float64(i)*step
		fmt.Fprintf(&d.b, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>`, at+1, y+panelHigh-high, max(1, step-2), high)
		_ = xml.EscapeText(&d.b, []byte(fmt.Sprintf("up to %s: %d jobs", Seconds(bucket.UpTo), bucket.Count)))
		d.b.WriteString("</title></rect>\n")
		if i%every == 0 {
			d.text(at+step/2, y+panelHigh+14, "faint small", "middle", "≤"+Seconds(bucket.UpTo))
		}
	}
	d.grid(x, y+panelHigh, x+wide, y+panelHigh)
}
