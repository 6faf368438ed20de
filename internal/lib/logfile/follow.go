package logfile

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Follow appends everything that is written to the stream to the file at the path. It checks every interval whether the
// file was replaced, and then writes to the new one. While no new file can be written, it keeps the former one. It returns
// once the first file is open; stop ends the checks.
func Follow(stream *os.File, path string, every time.Duration) (stop func(), err error) {
	if err := point(stream, path); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(every)
		defer again.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-again.C:
				_ = point(stream, path) // the former file is still good
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}, nil
}

// point makes the stream's descriptor the file, unless it is already.
func point(stream *os.File, path string) error {
	have, err := stream.Stat()
	if err != nil {
		return err
	}
	if want, err := os.Stat(path); err == nil && os.SameFile(have, want) {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Dup2(int(file.Fd()), int(stream.Fd()))
}
