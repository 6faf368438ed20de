package terminationlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"
)

const (
	// Path of the file in a container that sets no other.
	Path = "/dev/termination-log"
	// MaxSize bounds it, in bytes. The kubelet reads 4 KiB at most.
	MaxSize = 64 << 10
	// every is the interval at which it is bounded.
	every = time.Second
)

// Bound empties the file if it is a regular one that is larger than MaxSize. A missing file is no error.
func Bound(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // it is only emptied
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	size := info.Size()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		size = max(size, stat.Blocks*512) // what is allocated behind its end is on the disk, too
	}
	if !info.Mode().IsRegular() || size <= MaxSize {
		return nil
	}
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	return nil
}

// Keep bounds the file once a second until stop, which returns when nothing runs any more.
func Keep(path string, log *slog.Logger) (stop func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(every)
		defer look.Stop()
		for {
			if err := Bound(path); err != nil {
				log.Debug("keeping the termination message small", "error", err)
			}
			select {
			case <-look.C:
			case <-ending:
				return
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}
