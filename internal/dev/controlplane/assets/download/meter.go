package download

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Meter shows the progress of a download: a bar on a terminal, otherwise a line every few seconds.
type Meter struct {
	Out io.Writer
	// Terminal indicates that Out is one, whose last line can be overwritten.
	Terminal bool
	// Now reads the clock. Nil: time.Now.
	Now func() time.Time

	label                string
	began, shown         time.Time
	start, size, total   int64
	running, lineStarted bool
}

// Pauses between two lines, and between two changes of the bar.
const (
	lineEvery = 5 * time.Second
	barEvery  = 100 * time.Millisecond
)

// Label names the next download.
func (m *Meter) Label(label string) { m.label = label }

func (m *Meter) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

func (m *Meter) begin(start, total int64) {
	m.began = m.now()
	m.shown, m.start, m.size, m.total, m.running = m.began, start, start, total, true
}

func (m *Meter) at(size int64) {
	m.size = size
	every := lineEvery
	if m.Terminal {
		every = barEvery
	}
	if now := m.now(); now.Sub(m.shown) >= every {
		m.shown = now
		m.show(now)
	}
}

// done ends the line of a download, which may have failed.
func (m *Meter) done() {
	if m.running {
		m.show(m.now())
	}
	if m.lineStarted {
		fmt.Fprintln(m.Out)
	}
	m.running, m.lineStarted = false, false
}

func (m *Meter) show(now time.Time) {
	line := progress(m.size, m.total, m.size-m.start, now.Sub(m.began))
	if !m.Terminal {
		fmt.Fprintf(m.Out, "%s %s\n", m.label, line)
		return
	}
	fmt.Fprintf(m.Out, "\r%s %s%s\x1b[K", m.label, bar(m.size, m.total), line)
	m.lineStarted = true
}

func bar(size, total int64) string {
	const width = 20
	if total <= 0 {
		return ""
	}
	filled := int(min(size, total) * width / total)
	return "[" + strings.Repeat("#", filled) + strings.Repeat(".", width-filled) + "] "
}

// progress is one line about size bytes of total, of which received came in the time elapsed.
func progress(size, total, received int64, elapsed time.Duration) string {
	const mebi = 1 << 20
	text := fmt.Sprintf("%.1f MiB", float64(size)/mebi)
	if total > 0 {
		text = fmt.Sprintf("%3d%% of %.1f MiB", min(size, total)*100/total, float64(total)/mebi)
	}
	if seconds := elapsed.Seconds(); seconds > 0 && received > 0 {
		text += fmt.Sprintf(", %.1f MiB/s", float64(received)/mebi/seconds)
	}
	return text
}
