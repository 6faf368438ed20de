package guard

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// takeOutput puts pipes in the place of the guard's own standard output and error. What the container runtime gave it is a log on the node. The kubelet
// bounds and counts the logs of containers that run, and those of a job that has ended stay until the pod is deleted, so no process of the job may reach
// it: as /proc/1/fd/1, for example, to which health checks and cron jobs of many images write. That is among the logs of the container's main process
// now. The guard's own messages end here.
func (g *guard) takeOutput() error {
	for fd, name := range map[int]string{1: "output", 2: "error"} {
		read, write, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("replacing standard %s: %w", name, err)
		}
		err = unix.Dup3(int(write.Fd()), fd, 0) //nolint:gosec // a file descriptor
		if err == nil {
			// A guard that crashes writes to a pipe that nothing reads any more, and must not wait for that. What a job has opened itself waits.
			err = unix.SetNonblock(fd, true)
		}
		_ = write.Close()
		if err != nil {
			_ = read.Close()
			return fmt.Errorf("replacing standard %s: %w", name, err)
		}
		go func() { _, _ = io.Copy(stream{g.service.logs, fd == 2}, read) }() // ends with this process
	}
	return nil
}

// stream is one of a ring.
type stream struct {
	logs   *ring
	stderr bool
}

func (s stream) Write(p []byte) (int, error) {
	s.logs.write(s.stderr, p)
	return len(p), nil
}
