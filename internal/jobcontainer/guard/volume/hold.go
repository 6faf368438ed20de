package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The two signs of the runner's life: the last element of jobcontainer.Lock, and the socket on which the supervisor listens.
const (
	lockFile   = "lock"
	socketFile = "runner.sock"
)

// takePatience bounds the wait for the lock: guards of an earlier start may still have it for the moment in which they end.
const takePatience = 10 * time.Second

// Hold is the supervisor's side of the volume: as long as it exists, the guards of the pod run. The end of the process releases it.
type Hold struct {
	lock     *os.File
	listener *net.UnixListener
}

// Take locks the volume and listens on its socket. Call it before a job may start, and Release when the runner has ended. dir is
// jobcontainer.Dir.
//
// Nothing is ever accepted from the socket: a connection exists as soon as a guard has made it, and costs this process nothing,
// however many a job makes.
func Take(dir string) (hold *Hold, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // guards of other users read it
	if err != nil {
		return nil, fmt.Errorf("locking the volume of job containers: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := lockWithin(lock, takePatience); err != nil {
		return nil, fmt.Errorf("locking the volume of job containers %s: %w", dir, err)
	}
	socket := filepath.Join(dir, socketFile)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listening for guards: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for guards: %w", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil { //nolint:gosec // a guard may be any user
		_ = listener.Close()
		return nil, fmt.Errorf("listening for guards: %w", err)
	}
	return &Hold{lock: lock, listener: listener}, nil
}

// Release ends all guards of the pod.
func (h *Hold) Release() {
	_ = h.listener.Close()
	_ = h.lock.Close()
}

func lockWithin(file *os.File, patience time.Duration) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		err := flock(file, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		select {
		case <-limit.C:
			return errors.New("another process holds the lock: the volume must belong to one pod alone")
		case <-look.C:
		}
	}
}

// flock is the system call, with an end to it that is not a signal's.
func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) { //nolint:gosec // a file descriptor
			return err
		}
	}
}
