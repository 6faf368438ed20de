package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// placeSigns creates the files that say that this supervisor waits, and that no job has started in its container. The last one invites the
// poller.
func (s *supervisor) placeSigns() (err error) {
	if s.RegistrationDir != "" || s.files.apart() && !s.Given { // a static runner, or one on a Mac: no container idle waits for it
		err = placeSign(s.files.jobless)
	} else {
		s.lock, err = placeLocked(s.files.jobless)
	}
	if err != nil {
		return err
	}
	return placeSign(s.files.idle)
}

// removeSigns is for a supervisor that exits: the poller must not fetch work for this container any more, and no job can start in it.
func (s *supervisor) removeSigns() {
	_ = os.Remove(s.files.idle)
	if s.lock != nil {
		_ = placeSign(s.files.exited) // for a container idle that starts later
		s.showJob()
	}
}

// showJob removes the sign that no job has started (EXCL-6). The container idle exits.
func (s *supervisor) showJob() {
	_ = os.Remove(s.files.jobless)
	if s.lock != nil {
		_ = s.lock.Close()
		s.lock = nil
	}
}

// placeSign creates an empty file in the place of any other: a job may have left a FIFO, and to open that would take for ever.
func placeSign(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".sign-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, withoutPath(err))
	}
	if err = errors.Join(file.Close(), os.Rename(file.Name(), path)); err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// placeLocked creates an empty file that this process holds a lock on until the returned file is closed. The kernel releases the lock when
// the process exits, however it exits.
func placeLocked(path string) (*os.File, error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".sign-*")
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", path, withoutPath(err))
	}
	_ = flock(file, syscall.LOCK_EX) // on a file system without locks, the container idle only polls
	if err := os.Rename(file.Name(), path); err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return nil, err
	}
	return file, nil
}

func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
