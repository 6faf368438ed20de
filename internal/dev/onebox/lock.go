package onebox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// InUseError says that another process owns the state directory.
type InUseError struct {
	Dir string
	// PID of the owner; 0 when it could not be read.
	PID int
}

// Error names the process and the ways out.
func (e *InUseError) Error() string {
	return fmt.Sprintf("`bullpen up` runs in %s already (process %d): stop it with `bullpen down --state-dir %s`, or choose another "+
		"folder with --state-dir", e.Dir, e.PID, e.Dir)
}

// lock takes the state directory for this process. The kernel releases it when the process exits. The error is an
// *InUseError when another process has it.
func (l Layout) lock() (*os.File, error) {
	// Directories above it that are not there yet, such as root's /var/lib/bullpen: PostgreSQL's user has to pass
	// through (see prepare).
	if err := os.MkdirAll(filepath.Dir(l.Dir), 0o711); err != nil { //nolint:gosec // it cannot be listed
		return nil, fmt.Errorf("making the folder above the state folder: %w", err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	lock, err := childproc.Lock(l.lockFile())
	var held *childproc.HeldError
	if errors.As(err, &held) {
		return nil, &InUseError{Dir: l.Dir, PID: held.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("locking the state folder: %w", err)
	}
	return lock, nil
}
