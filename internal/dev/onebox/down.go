package onebox

import (
	"cmp"
	"context"
	"encoding/json"
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
	// Delete deletes the directory after everything in it has stopped.
	Delete bool
	// Now has a `bullpen up` that drains not wait for running jobs.
	Now bool
	// Patience bounds the wait for a running `bullpen up` to stop. Default: two minutes, and as long as a drain may take for one that drains.
	Patience time.Duration
	// Report receives events. Default: they are discarded.
	Report func(Event)
}

// Down stops what runs in a state directory: it asks the `bullpen up` that owns it to stop, or stops what a killed one left. It succeeds if
// nothing is running.
func Down(ctx context.Context, opts DownOptions) error {
	if opts.Report == nil {
		opts.Report = func(Event) {}
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
		report(EventStopped, "Nothing is running: no state directory %s.", layout.Dir)
		return nil
	}
	if _, err := os.Stat(layout.marker()); errors.Is(err, fs.ErrNotExist) {
		if err := layout.checkEmpty(); err != nil {
			return fmt.Errorf("%s is not a state directory of `bullpen up`. Nothing was changed", layout.Dir)
		}
	}
	drains := layout.drains() && !opts.Now
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(opts.Patience, downPatience(drains)))
	defer cancel()
	lock, err := takeOver(ctx, layout, signals{again: opts.Now, drains: drains}, report)
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
		report(EventNote, "stopped %d processes and pods of a killed run", ended)
	}
	if !opts.Delete {
		report(EventStopped, "Nothing is running in %s.", layout.Dir)
		return nil
	}
	if err := layout.delete(); err != nil {
		return err
	}
	report(EventStopped, "Nothing is running. Deleted %s.", layout.Dir)
	return nil
}

// HasState reports whether a directory is one of `bullpen up`, with data in it.
func HasState(dir string) bool {
	layout, err := NewLayout(dir)
	if err != nil {
		return false
	}
	_, err = os.Stat(layout.marker())
	return err == nil
}

// downPatience bounds the wait for a `bullpen up`.
func downPatience(drains bool) time.Duration {
	if drains {
		return drainPatience + 2*time.Minute
	}
	return 2 * time.Minute
}

// drains reports whether the `bullpen up` of the directory waits for running jobs before it stops.
func (l Layout) drains() bool {
	data, err := os.ReadFile(l.statusFile())
	var where Where
	return err == nil && json.Unmarshal(data, &where) == nil && where.Drain
}

// signals say how a `bullpen up` is asked to stop: again repeats the request, which ends a drain.
type signals struct{ again, drains bool }

// askAgain is the pause between two requests.
const askAgain = time.Second

// takeOver takes the directory's lock. It asks a present owner to stop, and waits for it.
func takeOver(ctx context.Context, layout Layout, how signals, report func(EventKind, string, ...any)) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond) // the kernel does not notify of a released lock
	defer tick.Stop()
	asked, seen := 0, 0
	last := time.Time{}
	for {
		lock, err := layout.lock()
		var used *InUseError
		if !errors.As(err, &used) {
			return lock, err
		}
		// Twice the same: an owner that has just started writes its PID after it has the lock, and the file may hold
		// anything until then.
		if used.PID > 1 && used.PID == seen && used.PID != asked {
			text := "Asking `bullpen up` (pid %d) to stop."
			if how.drains {
				text += " It waits for running jobs; `bullpen down --now` stops them."
			}
			report(EventStopping, text, used.PID)
			if err := syscall.Kill(used.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return nil, fmt.Errorf("asking process %d to stop: %w", used.PID, err)
			}
			asked, last = used.PID, time.Now()
		} else if how.again && used.PID == asked && time.Since(last) >= askAgain {
			last = time.Now()
			_ = syscall.Kill(used.PID, syscall.SIGTERM) // it may have exited
		}
		seen = used.PID
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("process %d is still running in %s. Kill it with `kill -9 %d`, then run `bullpen down` again", used.PID, layout.Dir, used.PID)
		case <-tick.C:
		}
	}
}
