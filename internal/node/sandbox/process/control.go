//go:build unix

package process

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

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
