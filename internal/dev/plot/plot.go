package plot

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// style is what all pictures have. The %s are the picture's own colors for light and for dark, and its own rules.
const style = `
  :root { --ground: #ffffff; --ink: #1b1f24; --faint: #59636e; --grid: #d9dee3; %s }
  @media (prefers-color-scheme: dark) {
    :root { --ground: #14181d; --ink: #e8ecf0; --faint: #a3adb8; --grid: #333b44; %s }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--ink) }
  .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 } .faint { fill: var(--faint) } .small { font-size: 10px }
  .ground { fill: var(--ground) } .grid { stroke: var(--grid); fill: none }
%s`

// Frame describes a picture before anything is drawn.
type Frame struct {
	Width, Height, Margin float64 // in pixels
	Label                 string  // for screen readers
	Title, Sentence       string
	// Light and Dark are CSS variables, Rules are CSS. Lines differ in dashes, too, for readers who cannot
	// distinguish the colors.
	Light, Dark, Rules string
}

// Drawing collects elements.
type Drawing struct{ strings.Builder }

// New begins a picture. End finishes it.
func New(f Frame) *Drawing {
	d := &Drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`+"\n<style>%s</style>\n",
		f.Width, f.Height, f.Width, f.Height, f.Label, fmt.Sprintf(style, f.Light, f.Dark, f.Rules))
	fmt.Fprintf(d, `<rect class="ground" width="%.0f" height="%.0f"/>`+"\n", f.Width, f.Height)
	d.Text(f.Margin, 34, "title", "start", "%s", f.Title)
	d.Text(f.Margin, 56, "faint", "start", "%s", f.Sentence)
	return d
}

// Text writes at a point. The anchor is start, middle or end.
func (d *Drawing) Text(x, y float64, class, anchor, format string, args ...any) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">`, x, y, class, anchor)
	d.Escaped(format, args...)
	d.WriteString("</text>\n")
}

// Escaped writes text in an element.
func (d *Drawing) Escaped(format string, args ...any) {
	_ = xml.EscapeText(d, fmt.Appendf(nil, format, args...)) // a strings.Builder takes everything
}

// Grid draws a line of the grid.
func (d *Drawing) Grid(x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, `<path class="grid" d="M%.1f %.1fL%.1f %.1f"/>`+"\n", x1, y1, x2, y2)
}

// End returns the whole picture.
func (d *Drawing) End() string { return d.String() + "</svg>\n" }
