package onebox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// InUseError says that another process owns the state folder.
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

// lock takes the state folder for this process. The kernel gives it back when the process ends, however it ends. The
// error is an *InUseError when somebody else has it.
func (l Layout) lock() (*os.File, error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	file, err := os.OpenFile(l.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the state folder's lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 32)) // only for the message
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(holder)))
			return nil, &InUseError{Dir: l.Dir, PID: pid}
		}
		return nil, fmt.Errorf("locking the state folder: %w", err)
	}
	err = file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("writing the state folder's lock: %w", err)
	}
	return file, nil
}
