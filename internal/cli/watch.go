package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/pflag"
)

// Watch prints something repeatedly, with --watch.
type Watch struct {
	on    bool
	every time.Duration

	// Ticks are when it is printed again; time.NewTicker's when nil.
	Ticks func(every time.Duration) (ticks <-chan time.Time, stop func())
	// Screen indicates whether the output is cleared each time; when nil it is if it is a terminal.
	Screen func(w io.Writer) bool
}

// minInterval is the least time between two requests of --watch.
const minInterval = 250 * time.Millisecond

// Flags adds --watch and --watch-every.
func (w *Watch) Flags(fs *pflag.FlagSet) {
	fs.BoolVarP(&w.on, "watch", "w", false, "refresh until Ctrl-C; when piped, print only changes")
	fs.DurationVar(&w.every, "watch-every", 2*time.Second, "refresh interval (minimum 250ms)")
}

// clearScreen moves to the top left and erases what is below, so that lines do not flicker as they would if all were erased first.
const clearScreen = "\x1b[H\x1b[J"

// page is one round of output. It has the colours of where it is written to.
type page struct {
	bytes.Buffer
	coloured bool
}

// Coloured implements what Coloured asks for.
func (p *page) Coloured() bool { return p.coloured }

// Run prints once, or until ctx ends, which is no error. A failure of the first round is returned; a later one is printed, and retried.
func (w *Watch) Run(ctx context.Context, out io.Writer, show func(ctx context.Context, out io.Writer) error) error {
	if !w.on {
		return show(ctx, out)
	}
	if w.every < minInterval {
		return fmt.Errorf("--watch-every must be %s or more, got %s", minInterval, w.every)
	}
	screen := w.Screen
	if screen == nil {
		screen = isTerminal
	}
	ticks, stop := w.tick()
	defer stop()
	var last []byte
	for first := true; ; first = false {
		now := page{coloured: Coloured(out)}
		err := show(ctx, &now)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			now.Reset()
			fmt.Fprintf(&now, "%v\nRetrying.\n", err)
			if last != nil && screen(out) { // the last known data stays
				now.Write(append([]byte("\nLast known:\n\n"), last...))
			}
		}
		if screen(out) {
			if _, err := io.WriteString(out, clearScreen+now.String()); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		} else if !bytes.Equal(steady(now.Bytes()), steady(last)) {
			if _, err := out.Write(now.Bytes()); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		if err == nil || !screen(out) {
			last = now.Bytes()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// ages are durations as tables show them. They pass by themselves, and are no change.
var ages = regexp.MustCompile(`\b(?:\d+d\d\dh|\d+h\d\dm|\d+m\d\ds|\d+(?:\.\d)?s)\b`)

// spaces align columns; how many there are depends on the durations.
var spaces = regexp.MustCompile(` {2,}`)

// steady is a page without its durations.
func steady(page []byte) []byte {
	return spaces.ReplaceAll(ages.ReplaceAll(page, []byte("~")), []byte("  "))
}

func (w *Watch) tick() (<-chan time.Time, func()) {
	if w.Ticks != nil {
		return w.Ticks(w.every)
	}
	ticker := time.NewTicker(w.every)
	return ticker.C, ticker.Stop
}
