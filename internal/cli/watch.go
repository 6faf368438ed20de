package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Watch shows something again and again, if it is asked to.
type Watch struct {
	on    bool
	every time.Duration

	// Ticks are when it is shown again; time.NewTicker's when nil.
	Ticks func(every time.Duration) (ticks <-chan time.Time, stop func())
	// Screen says whether what is written to is cleared each time; when nil it is if it is a terminal.
	Screen func(w io.Writer) bool
}

// Flags adds --watch and --watch-every.
func (w *Watch) Flags(fs *pflag.FlagSet) {
	fs.BoolVarP(&w.on, "watch", "w", false, "show it again and again, until Ctrl-C; a pipe is given what has changed")
	fs.DurationVar(&w.every, "watch-every", 2*time.Second, "how often, at most four times a second")
}

// clearScreen moves to the top left and erases what is below, so that lines do not flicker as they would if all were erased first.
const clearScreen = "\x1b[H\x1b[J"

// Run shows it once, or until ctx ends, which is no error. What goes wrong the first time is; later it is said, and tried again.
func (w *Watch) Run(ctx context.Context, out io.Writer, show func(ctx context.Context, out io.Writer) error) error {
	if !w.on {
		return show(ctx, out)
	}
	screen := w.Screen
	if screen == nil {
		screen = isTerminal
	}
	ticks, stop := w.tick()
	defer stop()
	var last []byte
	for first := true; ; first = false {
		var now bytes.Buffer
		err := show(ctx, &now)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			now.Reset()
			fmt.Fprintf(&now, "%v\nTrying again.\n", err)
			if last != nil && screen(out) { // what is known last stays in sight
				now.Write(append([]byte("\nAs of before:\n\n"), last...))
			}
		}
		if screen(out) {
			if _, err := io.WriteString(out, clearScreen+now.String()); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		} else if !bytes.Equal(now.Bytes(), last) {
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

func (w *Watch) tick() (<-chan time.Time, func()) {
	every := max(w.every, 250*time.Millisecond)
	if w.Ticks != nil {
		return w.Ticks(every)
	}
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}
