package growth

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The plot's measures, in pixels.
const (
	wide   = 960.0
	high   = 190.0
	margin = 64.0
	first  = 110.0
	step   = high + 70
)

// style follows the reader's preference. The lines differ in dashes, too: not everybody tells colours apart.
const style = `
  :root { --ground: #ffffff; --ink: #1b1f24; --faint: #59636e; --grid: #d9dee3; --a: #2f6fb5; --b: #b35900 }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #14181d; --ink: #e8ecf0; --faint: #a3adb8; --grid: #333b44; --a: #6aa8e8; --b: #f0a04b }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--ink) } .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 } .faint { fill: var(--faint) }
  .ground { fill: var(--ground) } .grid { stroke: var(--grid); fill: none }
  polyline { fill: none; stroke-width: 2 } .a { stroke: var(--a) } .b { stroke: var(--b); stroke-dasharray: 7 3 }
`

type drawing struct{ strings.Builder }

func (d *drawing) text(x, y float64, class, anchor, format string, args ...any) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">`, x, y, class, anchor)
	_ = xml.EscapeText(d, fmt.Appendf(nil, format, args...)) // a strings.Builder takes everything
	d.WriteString("</text>\n")
}

// SVG draws heap, goroutines and processor time of each part over the jobs that have ended.
func (r Run) SVG(w io.Writer) error {
	d := &drawing{}
	const total = first + 3*step
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="What grows with the jobs">`+"\n<style>%s</style>\n",
		wide, total, wide, total, style)
	fmt.Fprintf(d, `<rect class="ground" width="%.0f" height="%.0f"/>`+"\n", wide, total)
	d.text(margin, 34, "title", "start", "What grows with the jobs")
	d.text(margin, 56, "faint", "start", "%s", r.Sentence())
	for i, name := range r.names() {
		x := margin + float64(i)*140
		fmt.Fprintf(d, `<polyline class="%s" points="%.1f,76 %.1f,76"/>`+"\n", class(i), x, x+28)
		d.text(x+34, 80, "", "start", "%s", name)
	}
	if len(r.Samples) > 1 {
		r.panel(d, 0, "live heap, MiB", func(part string, i int) float64 { return r.Samples[i].Parts[part].HeapBytes / mib })
		r.panel(d, 1, "processor time for each job, ms", func(part string, i int) float64 {
			from := max(0, i-max(1, len(r.Samples)/20)) // over a stretch, for the clock of processor time is a coarse one
			return perJob(part, r.Samples[from], r.Samples[max(i, 1)])
		})
		r.panel(d, 2, "goroutines", func(part string, i int) float64 { return r.Samples[i].Parts[part].Goroutines })
	}
	d.WriteString("</svg>\n")
	_, err := io.WriteString(w, d.String())
	return err
}

func class(i int) string { return string(rune('a' + i%2)) }

// panel draws one line for each part, from zero up.
func (r Run) panel(d *drawing, row int, title string, of func(part string, i int) float64) {
	top, most := first+float64(row)*step+20, 0.0
	for _, name := range r.names() {
		for i := range r.Samples {
			most = max(most, of(name, i))
		}
	}
	most = max(most*1.1, 1e-9)
	from, to := float64(r.Samples[0].Jobs), float64(r.Samples[len(r.Samples)-1].Jobs)
	d.text(margin, top-10, "head", "start", "%s", title)
	for i := range 5 {
		y := top + high*float64(4-i)/4
		fmt.Fprintf(d, `<path class="grid" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", margin, y, wide-margin, y)
		d.text(margin-8, y+4, "faint", "end", "%.3g", most*float64(i)/4)
		d.text(margin+(wide-2*margin)*float64(i)/4, top+high+18, "faint", "middle", "%.0f", from+(to-from)*float64(i)/4)
	}
	d.text(wide-margin, top+high+36, "faint", "end", "jobs ended")
	for n, name := range r.names() {
		var points []string
		for i, s := range r.Samples {
			x := margin + (wide-2*margin)*(float64(s.Jobs)-from)/max(to-from, 1)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, top+high-high*of(name, i)/most))
		}
		fmt.Fprintf(d, `<polyline class="%s" points="%s"/>`+"\n", class(n), strings.Join(points, " "))
	}
}
