//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Remove implements sandbox.Sandbox.
func (s *Sandbox) Remove(ctx context.Context, podUID string) error {
	if podUID != filepath.Base(podUID) || podUID == "." || podUID == ".." {
		return nil // it names no pod's directory
	}
	gone := filepath.Join(s.removingDir(), filepath.Base(podUID))
	_, err := s.pod(podUID)
	if errors.Is(err, sandbox.ErrNotFound) {
		var unreadable bool
		if unreadable, err = s.unreadable(podUID); err == nil && !unreadable {
			return RemoveAll(gone) // an earlier Remove may have come this far
		}
	}
	if err != nil {
		return err
	}
	// NODE-2: first the processes, and only when the last has gone the record of them.
	if err := s.end(ctx, podUID); err != nil {
		return err
	}
	if s.opts.Enclosure != nil {
		if err := s.opts.Enclosure.Network.Detach(ctx, podUID); err != nil {
			return err
		}
	}
	if err := RemoveAll(gone); err != nil {
		return err
	}
	// Renamed at once: a half-deleted directory must not be read as a record.
	if err := os.Rename(s.podDir(podUID), gone); err != nil {
		return fmt.Errorf("removing the pod's directory: %w", err)
	}
	return RemoveAll(gone)
}

// unreadable reports whether a pod has a directory and its record is missing or no JSON: a power failure cut it short. The directory may hold
// the pod's environment. NODE-7: a record of another owner can be read.
func (s *Sandbox) unreadable(podUID string) (bool, error) {
	if _, err := os.Stat(s.podDir(podUID)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	var record podRecord
	found, err := readJSON(filepath.Join(s.podDir(podUID), "pod.json"), &record)
	return !found, err
}

// end kills every container of a pod, and returns when no process is left. The pod's own record may be unreadable.
func (s *Sandbox) end(ctx context.Context, podUID string) error {
	containers, err := s.containers(podUID)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := c.signal(sandbox.Kill); err != nil {
			return err
		}
	}
	for _, c := range containers {
		if _, err := s.wait(ctx, c); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.shims, c.dir)
		s.mu.Unlock()
	}
	return nil
}

// cleanupPatience is how long Cleanup waits for shims to carry out their orders.
const cleanupPatience = 10 * time.Second

func (s *Sandbox) endAll(ctx context.Context, refs []sandbox.PodRef, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, ref := range refs {
		if err := s.end(ctx, ref.UID); err != nil {
			return fmt.Errorf("ending pod %s/%s: %w", ref.Namespace, ref.Name, err)
		}
	}
	return nil
}

// RemoveAll is os.RemoveAll for a job's files: it also deletes read-only directories, which some build tools create.
func RemoveAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the pod's directory: %w", err)
	}
	return nil
}

// ErrInUse reports that a node agent uses the state directory.
var ErrInUse = errors.New("a node agent is still using this state directory: stop it first")

// Lock takes the state directory for one node agent, until the returned function is called or the process ends. ErrInUse when it is taken.
func Lock(stateDir string) (unlock func(), err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(stateDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", stateDir, ErrInUse)
		}
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	return func() {
		// Closing alone would not do: a child that is being started holds the file, too, until it has become its program.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}

// Cleanup kills every process that the state directory owns and returns when none is left. Pods stay on record, with their containers'
// exits and logs. ErrInUse while a node agent runs there: it would only start more. A directory that does not exist owns nothing.
func Cleanup(ctx context.Context, stateDir string) (pods int, err error) {
	if _, err := os.Stat(stateDir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	unlock, err := Lock(stateDir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	s, err := New(Options{StateDir: stateDir})
	if err != nil {
		return 0, err
	}
	refs, err := s.List(ctx)
	if err != nil {
		return 0, err
	}
	// Politely first, through the shims, so that exit codes are on record. A shim that does not answer is not waited for long.
	if err := s.endAll(ctx, refs, cleanupPatience); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return 0, err
	}
	// Processes that escaped a killed shim, and shims that did not answer, still carry the mark.
	if err := killAllMarked(ctx, envMark+"="+s.owner); err != nil {
		return 0, fmt.Errorf("ending what is left: %w", err)
	}
	if err := s.endAll(ctx, refs, cleanupPatience); err != nil {
		return 0, err
	}
	return len(refs), nil
}
