package growth

import (
	"fmt"
	"io"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/plot"
)

// The plot's measures, in pixels.
const (
	wide   = 960.0
	high   = 190.0
	margin = 64.0
	first  = 110.0
	step   = high + 70
)

const (
	light = "--a: #2f6fb5; --b: #b35900"
	dark  = "--a: #6aa8e8; --b: #f0a04b"
	rules = "  polyline { fill: none; stroke-width: 2 } .a { stroke: var(--a) } .b { stroke: var(--b); stroke-dasharray: 7 3 }\n"
)

// SVG draws heap, goroutines and processor time of each part over the jobs that have ended.
func (r Run) SVG(w io.Writer) error {
	d := plot.New(plot.Frame{
		Width: wide, Height: first + 3*step, Margin: margin, Label: "What grows with the jobs", Title: "What grows with the jobs", Sentence: r.Sentence(),
		Light: light, Dark: dark, Rules: rules,
	})
	for i, name := range r.names() {
		x := margin + float64(i)*140
		fmt.Fprintf(d, `<polyline class="%s" points="%.1f,76 %.1f,76"/>`+"\n", class(i), x, x+28)
		d.Text(x+34, 80, "", "start", "%s", name)
	}
	if len(r.Samples) > 1 {
		r.panel(d, 0, "live heap, MiB", func(part string, i int) float64 { return r.Samples[i].Parts[part].HeapBytes / mib })
		r.panel(d, 1, "processor time for each job, ms", func(part string, i int) float64 {
			from := max(0, i-max(1, len(r.Samples)/20)) // over a stretch, for the clock of processor time is a coarse one
			return perJob(part, r.Samples[from], r.Samples[max(i, 1)])
		})
		r.panel(d, 2, "goroutines", func(part string, i int) float64 { return r.Samples[i].Parts[part].Goroutines })
	}
	_, err := io.WriteString(w, d.End())
	return err
}

func class(i int) string { return string(rune('a' + i%2)) }

// panel draws one line for each part, from zero up.
func (r Run) panel(d *plot.Drawing, row int, title string, of func(part string, i int) float64) {
	top, most := first+float64(row)*step+20, 0.0
	for _, name := range r.names() {
		for i := range r.Samples {
			most = max(most, of(name, i))
		}
	}
	most = max(most*1.1, 1e-9)
	from, to := float64(r.Samples[0].Jobs), float64(r.Samples[len(r.Samples)-1].Jobs)
	d.Text(margin, top-10, "head", "start", "%s", title)
	for i := range 5 {
		y := top + high*float64(4-i)/4
		d.Grid(margin, y, wide-margin, y)
		d.Text(margin-8, y+4, "faint", "end", "%.3g", most*float64(i)/4)
		d.Text(margin+(wide-2*margin)*float64(i)/4, top+high+18, "faint", "middle", "%.0f", from+(to-from)*float64(i)/4)
	}
	d.Text(wide-margin, top+high+36, "faint", "end", "jobs ended")
	for n, name := range r.names() {
		var points []string
		for i, s := range r.Samples {
			x := margin + (wide-2*margin)*(float64(s.Jobs)-from)/max(to-from, 1)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, top+high-high*of(name, i)/most))
		}
		fmt.Fprintf(d, `<polyline class="%s" points="%s"/>`+"\n", class(n), strings.Join(points, " "))
	}
}
