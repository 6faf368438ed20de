package onebox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// DownOptions of Down.
type DownOptions struct {
	// StateDir is the state directory. Required.
	StateDir string
	// Binary is the executable that holds every part. Default: this one.
	Binary string
	// Delete removes the directory when nothing runs in it any more.
	Delete bool
	// Patience bounds the wait for a running `bullpen up` to stop. Default: two minutes.
	Patience time.Duration
	// Report gets the events. Optional.
	Report func(Event)
}

// Down stops what runs in a state directory: it asks the `bullpen up` that owns it, or ends what a killed one left behind.
// Nothing to do is no error.
func Down(ctx context.Context, opts DownOptions) error {
	if opts.Report == nil {
		opts.Report = func(Event) {}
	}
	if opts.Patience == 0 {
		opts.Patience = 2 * time.Minute
	}
	if opts.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding this executable: %w", err)
		}
		opts.Binary = self
	}
	report := func(kind EventKind, format string, args ...any) {
		opts.Report(Event{Time: time.Now(), Kind: kind, Message: fmt.Sprintf(format, args...)})
	}
	layout, err := NewLayout(opts.StateDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(layout.Dir); errors.Is(err, fs.ErrNotExist) {
		report(EventStopped, "Nothing runs: there is no state folder %s.", layout.Dir)
		return nil
	}
	if _, err := os.Stat(layout.marker()); errors.Is(err, fs.ErrNotExist) {
		if err := layout.checkEmpty(); err != nil {
			return fmt.Errorf("%s is not a state folder of `bullpen up`, and is left alone", layout.Dir)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Patience)
	defer cancel()
	lock, err := takeOver(ctx, layout, report)
	if err != nil {
		return err
	}
	defer lock.Close()
	ended, err := clearLeftovers(ctx, layout, opts.Binary)
	if err != nil {
		return err
	}
	_ = os.Remove(layout.statusFile())
	if ended > 0 {
		report(EventNote, "ended what a killed run left behind (%d processes and pods)", ended)
	}
	if !opts.Delete {
		report(EventStopped, "Nothing runs in %s.", layout.Dir)
		return nil
	}
	if err := layout.delete(); err != nil {
		return err
	}
	report(EventStopped, "Nothing runs, and %s is deleted.", layout.Dir)
	return nil
}

// takeOver takes the directory's lock, from its owner if need be: that one is asked to stop, and waited for.
func takeOver(ctx context.Context, layout Layout, report func(EventKind, string, ...any)) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond) // the kernel does not notify when a lock is released
	defer tick.Stop()
	asked, seen := 0, 0
	for {
		lock, err := layout.lock()
		var used *InUseError
		if !errors.As(err, &used) {
			return lock, err
		}
		// Twice the same: an owner that has just started writes its PID after it has the lock, and the file may hold
		// anything until then.
		if used.PID > 1 && used.PID == seen && used.PID != asked {
			report(EventStopping, "Asking `bullpen up` (process %d) to stop.", used.PID)
			if err := syscall.Kill(used.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("asking process %d to stop: %w", used.PID, err)
			}
			asked = used.PID
		}
		seen = used.PID
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("process %d still runs in %s: end it with `kill -9 %d`, then run `bullpen down` again", used.PID, layout.Dir, used.PID)
		case <-tick.C:
		}
	}
}
