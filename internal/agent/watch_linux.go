package agent

import (
	"fmt"
	"os"
	"syscall"
)

// watch signals on the channel when something appears in the directory. The kernel sends events, so that thousands
// of waiting pods cost nothing and a job starts at once. stop ends it and waits for its goroutine.
func watch(dir string) (appeared <-chan struct{}, stop func(), err error) {
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	file := os.NewFile(uintptr(fd), "inotify") // non-blocking: Close ends a Read that waits
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_CLOSE_WRITE); err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("watching %s: %w", dir, err)
	}
	events, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			if _, err := file.Read(buffer); err != nil {
				return // closed
			}
			select {
			case events <- struct{}{}:
			default: // one is pending already, and the reader checks everything then
			}
		}
	}()
	return events, func() { _ = file.Close(); <-done }, nil
}
