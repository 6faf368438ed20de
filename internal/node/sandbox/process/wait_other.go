//go:build unix && !linux

package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// pollShim is how often waitShim looks.
const pollShim = 100 * time.Millisecond

// waitShim returns when no shim holds the FIFO. kqueue on macOS does not report that the last writer of a FIFO has closed it, so it polls.
func waitShim(ctx context.Context, fifo string) error {
	fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	tick := time.NewTicker(pollShim)
	defer tick.Stop()
	for {
		if held, err := stillHeld(fd); err != nil || !held {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// stillHeld reads from a FIFO to which no data is ever written: no data yet means that a writer holds it, end-of-file that none does.
func stillHeld(fd int) (bool, error) {
	_, err := unix.Read(fd, make([]byte, 1))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return true, nil
	}
	return false, err
}
