package onebox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Process is one entry of processes.json: a process that was started for the state folder.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started identifies the process together with its pid: pids are used again.
	Started string `json:"started"`
}

// Alive reports whether that very process still runs.
func (p Process) Alive() bool {
	if p.PID <= 1 || p.Started == "" {
		return false // never signal what is not certain
	}
	stamp, err := startStamp(p.PID)
	return err == nil && stamp == p.Started
}

// record keeps processes.json: everything that was ever started by this owner of the folder and may still run. It is
// written before anybody relies on a process, so that whoever comes after a kill -9 finds all of them.
type record struct {
	path string

	mu        sync.Mutex
	processes []Process
}

// add records a running process and forgets those that are gone.
func (r *record) add(name string, pid int) error {
	stamp, err := startStamp(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended already
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.processes[:0]
	for _, p := range r.processes {
		if p.Alive() {
			kept = append(kept, p)
		}
	}
	r.processes = append(kept, Process{Name: name, PID: pid, Started: stamp})
	return writeJSON(r.path, r.processes)
}

// alive are the recorded processes that still run.
func (r *record) alive() []Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return aliveOf(r.processes)
}

func aliveOf(processes []Process) []Process {
	var running []Process
	for _, p := range processes {
		if p.Alive() {
			running = append(running, p)
		}
	}
	return running
}

func readRecord(path string) ([]Process, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var processes []Process
	if err == nil {
		err = json.Unmarshal(data, &processes)
	}
	if err != nil {
		return nil, &StaleFolderError{fmt.Sprintf("%s cannot be read (%v): end what still runs in that folder by hand, then remove the file",
			path, err)}
	}
	return processes, nil
}

// endRecorded ends the processes that a killed owner left behind: politely, so that databases close their files, then by
// force. The caller holds the folder's lock, so whoever still runs has no owner.
func endRecorded(ctx context.Context, processes []Process) (ended []Process, err error) {
	left := aliveOf(processes)
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
			signalProcess(p, signal)
		}
		if left, err = awaitGone(ctx, left, step.patience); err != nil {
			return ended, err
		}
		if len(left) == 0 {
			return ended, nil
		}
	}
	return ended, fmt.Errorf("process %d (%s), which an earlier run left behind, does not end: end it by hand", left[0].PID, left[0].Name)
}

// signalProcess signals a process's group, which it leads, or the process alone if it leads none.
func signalProcess(p Process, signal syscall.Signal) {
	if syscall.Kill(-p.PID, signal) != nil {
		_ = syscall.Kill(p.PID, signal) // it may have gone
	}
}

func awaitGone(ctx context.Context, processes []Process, patience time.Duration) ([]Process, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond) // a process that is not our child cannot be waited for
	defer tick.Stop()
	for left := aliveOf(processes); ; left = aliveOf(left) {
		if len(left) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return left, fmt.Errorf("waiting for processes of an earlier run to end: %w", ctx.Err())
		case <-deadline.C:
			return left, nil
		case <-tick.C:
		}
	}
}
