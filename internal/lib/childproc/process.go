package childproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Process identifies one process of this machine, and no later one that gets its PID. An owner records a list of its
// children in JSON, for the owner that starts after it.
type Process struct {
	// Name is for people.
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started identifies the process together with its PID: pids are used again. Empty: unknown, and never signalled.
	Started string `json:"started"`
}

// Identify returns the process that has this PID now. The error is fs.ErrNotExist when there is none, or only a
// zombie.
func Identify(name string, pid int) (Process, error) {
	started, err := startStamp(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{Name: name, PID: pid, Started: started}, nil
}

// Alive reports whether that very process still runs.
func (p Process) Alive() bool {
	if p.PID <= 1 || p.Started == "" { // the "group" of process 1 is every process there is
		return false
	}
	started, err := startStamp(p.PID)
	return err == nil && started == p.Started
}

// Signal signals the process's group, which it leads, or the process alone if it leads none. A process that is not
// certainly this one is left alone.
func (p Process) Signal(signal syscall.Signal) {
	if p.Alive() && syscall.Kill(-p.PID, signal) != nil {
		_ = syscall.Kill(p.PID, signal) // it may have gone
	}
}

// Running are those of the processes that still run.
func Running(processes []Process) []Process {
	var running []Process
	for _, p := range processes {
		if p.Alive() {
			running = append(running, p)
		}
	}
	return running
}

// AwaitGone waits until none of the processes runs, or patience is over, and returns those that are left. The error
// says that ctx ended.
func AwaitGone(ctx context.Context, processes []Process, patience time.Duration) (left []Process, err error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond) // a process that is not our child cannot be waited for
	defer tick.Stop()
	for left = Running(processes); len(left) > 0; left = Running(left) {
		select {
		case <-ctx.Done():
			return left, fmt.Errorf("waiting for processes of an earlier run to end: %w", ctx.Err())
		case <-deadline.C:
			return left, nil
		case <-tick.C:
		}
	}
	return nil, nil
}

// ReadRecord reads a record of processes; a file that does not exist names none.
func ReadRecord(path string) ([]Process, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var processes []Process
	if err := json.Unmarshal(data, &processes); err != nil {
		return nil, fmt.Errorf("decoding it: %w", err)
	}
	return processes, nil
}
