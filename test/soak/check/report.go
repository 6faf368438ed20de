package check

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Failed reports whether any row is not zero.
func (r *Report) Failed() bool { return len(r.Findings) > 0 }

// Print writes the table, then the findings with what each witness saw.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\n  %-44s %s\n", "", "count")
	for _, row := range Rows() {
		mark := ""
		if r.Count(row) > 0 {
			mark = "  <--"
		}
		fmt.Fprintf(w, "  %-44s %5d%s\n", row, r.Count(row), mark)
	}
	fmt.Fprintf(w, "  %-44s %5d of %d jobs, %d deeds\n", "(ended on purpose by the soak)", r.OnPurpose, r.Jobs, r.Deeds)
	fmt.Fprintf(w, "  %-44s p50 %s, p95 %s, most %s\n\n", "(from queued to running)",
		r.Waits.P50.Round(time.Millisecond), r.Waits.P95.Round(time.Millisecond), r.Waits.Most.Round(time.Millisecond))
	if r.Waits.Bound > 0 {
		r.Waits.histogram(w)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	const most = 20 // in full; the rest is in report.json
	for i, f := range r.Findings {
		if i == most {
			fmt.Fprintf(w, "and %d more\n", len(r.Findings)-most)
			break
		}
		fmt.Fprintf(w, "%s: %s\n", strings.ToUpper(f.Row), f.What)
		for _, line := range f.Timeline {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
}

// histogram prints how long jobs waited, against the bound.
func (w Waits) histogram(out io.Writer) {
	last := time.Duration(0)
	for _, edge := range []time.Duration{
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
	} {
		if edge < w.Bound {
			w.bar(out, last, edge, fmt.Sprintf("to %s", edge))
			last = edge
		}
	}
	w.bar(out, last, w.Bound, fmt.Sprintf("to %s, the bound", w.Bound))
	w.bar(out, w.Bound, 1<<62, "longer")
	fmt.Fprintln(out)
}

func (w Waits) bar(out io.Writer, from, to time.Duration, label string) {
	n := 0
	for _, wait := range w.all {
		if wait > from && wait <= to || from == 0 && wait <= 0 {
			n++
		}
	}
	const width = 50
	bar := ""
	if w.Jobs > 0 {
		bar = strings.Repeat("#", (n*width+w.Jobs-1)/w.Jobs)
	}
	fmt.Fprintf(out, "  %-22s %6d %s\n", label, n, bar)
}
