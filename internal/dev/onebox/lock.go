package onebox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// InUseError reports that another process owns the state directory.
type InUseError struct {
	Dir string
	// PID of the owner; 0 when it could not be read.
	PID int
}

// Error names the process and the ways out.
func (e *InUseError) Error() string {
	return fmt.Sprintf("`bullpen up` is already running in %s (pid %d). Stop it with `bullpen down --state-dir %s`, or choose another "+
		"--state-dir", e.Dir, e.PID, e.Dir)
}

// lock locks the state directory for this process. The kernel releases the lock when the process exits. The error is an *InUseError if another
// process has it.
func (l Layout) lock() (*os.File, error) {
	// PostgreSQL's user has to traverse missing parents too, such as root's /var/lib/bullpen (see prepare).
	if err := os.MkdirAll(filepath.Dir(l.Dir), 0o711); err != nil { //nolint:gosec // it cannot be listed
		return nil, fmt.Errorf("creating the parent of the state directory: %w", err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the state directory: %w", err)
	}
	lock, err := childproc.Lock(l.lockFile())
	var held *childproc.HeldError
	if errors.As(err, &held) {
		return nil, &InUseError{Dir: l.Dir, PID: held.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	return lock, nil
}
