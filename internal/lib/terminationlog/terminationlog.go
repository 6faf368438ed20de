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
	// maxText bounds what Set writes, in bytes.
	maxText = 1 << 10
	// every is the interval at which it is bounded.
	every = time.Second
)

// File is the message of one container. Its methods must not be called at the same time.
type File struct {
	path string
	file *os.File
}

// Open opens the file, before a process that may write to it runs: the owner of a file can keep others from opening it for a while (a lease), and cannot
// once it is open for writing. A file that is not there, or is not a regular one, is opened later if it is there then.
func Open(path string) *File {
	f := &File{path: path}
	_ = f.open()
	return f
}

func (f *File) open() error {
	if f.file != nil {
		return nil
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // it is only emptied, and gets a line
	if err != nil {
		return err //nolint:wrapcheck // the caller says what for
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return fmt.Errorf("open %s: not a regular file", f.path)
	}
	f.file = file
	return nil
}

// Bound empties the file if it is larger than MaxSize. A missing file is no error.
func (f *File) Bound() error {
	err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	info, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	size := info.Size()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		size = max(size, stat.Blocks*512) // what is allocated behind its end is on the disk, too
	}
	if size <= MaxSize {
		return nil
	}
	if err := f.file.Truncate(0); err != nil {
		return fmt.Errorf("bounding the termination message: %w", err)
	}
	return nil
}

// Set replaces the message, and cuts a long one. A missing file is no error.
func (f *File) Set(text string) error {
	err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		if err = f.file.Truncate(0); err == nil {
			_, err = f.file.WriteAt([]byte(text[:min(len(text), maxText)]), 0)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

// Keep bounds the file once a second until stop, and then once more. stop returns when nothing runs any more.
func Keep(path string, log *slog.Logger) (stop func()) {
	file := Open(path)
	ending, ended := make(chan struct{}), make(chan struct{})
	bound := func() {
		if err := file.Bound(); err != nil {
			log.Debug("keeping the termination message small", "error", err)
		}
	}
	go func() {
		defer close(ended)
		defer file.Close()
		look := time.NewTicker(every)
		defer look.Stop()
		for {
			bound()
			select {
			case <-look.C:
			case <-ending:
				bound()
				return
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}
