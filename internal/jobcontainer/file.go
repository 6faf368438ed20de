package jobcontainer

import (
	"fmt"
	"os"
	"syscall"
)

// OpenRegular opens a file for reading that a job may have replaced. It follows no link, and refuses whatever is not a regular file, without a wait: to
// open a FIFO would take until something writes to it.
func OpenRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // it has the operation and the path
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
