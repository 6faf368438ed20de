package childproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// HeldError reports that another process holds a lock.
type HeldError struct {
	// Path of the lock file.
	Path string
	// PID that the holder wrote; 0 when it could not be read. A holder that has just come writes its own after it has
	// the lock: until then the file may name an earlier one.
	PID int
}

// Error names the lock and its holder.
func (e *HeldError) Error() string { return fmt.Sprintf("%s is held by process %d", e.Path, e.PID) }

// Lock takes a lock for this process and writes its PID into the file, which is created if need be. Closing the file
// releases the lock, and so does the kernel when the process exits. The error is a *HeldError when another process
// holds it.
func Lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return LockFile(file, path)
}

// LockFile is Lock of a file that is open for reading and writing, whose path is for the error alone. It is closed unless it is returned.
func LockFile(file *os.File, path string) (*os.File, error) {
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 32)) // only for the message
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(holder)))
			return nil, &HeldError{Path: path, PID: pid}
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	err := file.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
