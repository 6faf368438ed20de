package onebox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// record keeps processes.json: every process of this owner of the directory that may still run. It is written before a process is used, so that
// the next owner finds all of them after a kill -9.
type record struct {
	path string

	mu        sync.Mutex
	processes []childproc.Process
}

// add records a running process and forgets those that are gone.
func (r *record) add(name string, pid int) error {
	added, err := childproc.Identify(name, pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended already
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(childproc.Running(r.processes), added)
	return writeJSON(r.path, r.processes)
}

// alive are the recorded processes that still run.
func (r *record) alive() []childproc.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return childproc.Running(r.processes)
}

func readRecord(path string) ([]childproc.Process, error) {
	processes, err := childproc.ReadRecord(path)
	if err != nil {
		return nil, &StaleFolderError{fmt.Sprintf("%s cannot be read (%v). Stop what still runs in that directory by hand, then remove the file",
			path, err)}
	}
	return processes, nil
}

// endRecorded ends the processes that a killed owner left behind: politely, so that databases close their files, then by
// force. The caller holds the directory's lock, so a process that still runs has no owner.
func endRecorded(ctx context.Context, processes []childproc.Process) (ended []childproc.Process, err error) {
	left := childproc.Running(processes)
	ended = left
	for _, step := range []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, 15 * time.Second}} {
		for _, p := range left {
			signal := step.signal
			if p.Name == partPostgres && signal == syscall.SIGTERM {
				signal = syscall.SIGINT // its SIGTERM waits until every client has gone
			}
			p.Signal(signal)
		}
		if left, err = childproc.AwaitGone(ctx, left, step.patience); err != nil {
			return ended, err
		}
		if len(left) == 0 {
			return ended, nil
		}
	}
	return ended, fmt.Errorf("process %d (%s) of an earlier run does not stop. Kill it by hand", left[0].PID, left[0].Name)
}
