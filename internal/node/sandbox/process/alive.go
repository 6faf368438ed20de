//go:build unix

package process

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// shimAlive says, without waiting, whether some shim holds the writing end of the FIFO.
func shimAlive(fifo string) (bool, error) {
	fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	return stillHeld(fd)
}

// stillHeld reads from a FIFO in which nobody ever writes: nothing yet means that a writer is there, the end that none is.
func stillHeld(fd int) (bool, error) {
	_, err := unix.Read(fd, make([]byte, 1))
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return true, nil
	}
	return false, err
}

// order writes one order to a container's control FIFO. No reader means that the shim, and with it the container, has ended.
func order(fifo string, what byte) error {
	f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.Write([]byte{what})
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

func signalOrder(s sandbox.Signal) byte {
	if s == sandbox.Kill {
		return orderKill
	}
	return orderTerminate
}
