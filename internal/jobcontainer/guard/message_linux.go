package guard

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// messageFile is the container's termination message. It is a file of the kubelet on the node, which every user of the container can
	// write, and which no limit counts.
	messageFile = "/dev/termination-log"
	// maxMessage bounds it, in bytes. The kubelet reads 4 KiB at most.
	maxMessage = 64 << 10
)

// boundMessage empties a regular file that is larger than maxMessage. A missing file is no error.
func boundMessage(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller logs it with the path
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err //nolint:wrapcheck // see above
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size <= maxMessage && stat.Blocks*512 <= maxMessage {
		return nil
	}
	return unix.Ftruncate(fd, 0) //nolint:wrapcheck // see above
}
