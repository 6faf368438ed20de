package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// ErrInUse: another living process owns the directory.
var ErrInUse = errors.New("another process runs PostgreSQL in this directory")

// lockDir takes the directory for this process. The kernel drops the lock with its owner, so it never goes stale.
func lockDir(dir string) (*os.File, error) {
	lock, err := childproc.Lock(filepath.Join(dir, "owner.lock"))
	var held *childproc.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: %s; stop it first, or choose another state directory", ErrInUse, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return lock, nil
}

// Abandoned reports whether a directory of Start has no living owner.
func Abandoned(dir string) bool {
	file, err := os.Open(filepath.Join(dir, "owner.lock"))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // and with it the lock
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// postmasterPID reads the process id and the state ("starting", "ready", …) that a server keeps in its data directory.
func postmasterPID(data string) (pid int, state string, err error) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, "", err
	}
	lines := strings.Split(string(text), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return 0, "", fmt.Errorf("reading postmaster.pid: no process id in %q", lines[0])
	}
	const stateLine = 7 // documented order: PID, directory, start time, port, socket directory, address, memory, state
	if len(lines) > stateLine {
		state = strings.TrimSpace(lines[stateLine])
	}
	return pid, state, nil
}

// stopLeftover ends a server that a killed owner left running in the data directory. The caller holds the directory's lock,
// so a server that still runs there has no owner. It reports whether a lock file of an earlier server remains.
func stopLeftover(ctx context.Context, data string) (stale bool, err error) {
	pid, _, err := postmasterPID(data)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil && alive(pid) && runsIn(ctx, pid, data) {
		return true, endProcess(ctx, pid)
	}
	if err == nil && !alive(pid) {
		return true, nil // the server itself recognizes and replaces the file, and checks the shared memory
	}
	// Unreadable, or its PID belongs to another process by now, which the server would take for a postmaster.
	if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return true, fmt.Errorf("removing a stale postmaster.pid: %w", err)
	}
	return true, nil
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// endProcess asks for a fast shutdown, then an immediate one, then kills.
func endProcess(ctx context.Context, pid int) error {
	steps := []struct {
		signal   syscall.Signal
		patience time.Duration
	}{{fastShutdown, 10 * time.Second}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, 5 * time.Second}}
	for _, step := range steps {
		if err := syscall.Kill(pid, step.signal); err != nil {
			if errors.Is(err, syscall.ESRCH) {
				return nil
			}
			return fmt.Errorf("stopping the leftover PostgreSQL (process %d): %w", pid, err)
		}
		gone, err := await(ctx, step.patience, func() bool { return !alive(pid) })
		if err != nil || gone {
			return err
		}
	}
	return fmt.Errorf("the leftover PostgreSQL (process %d) does not end: stop it by hand", pid)
}

// await polls every few milliseconds: neither a foreign process nor a file can be waited for otherwise.
func await(ctx context.Context, patience time.Duration, condition func() bool) (bool, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline.C:
			return false, nil
		case <-tick.C:
		}
	}
	return true, nil
}
