package buildkit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is started when a client connects to its socket, which it takes over as its descriptor 3. It is used by one goroutine.
type program struct {
	name     string // in the log
	socket   string
	argv     func() ([]string, error) // of the agent's binary
	listener *net.UnixListener
	file     *os.File // the listener's, to wait for its first connection
	fd       uintptr  // the same, for the program to inherit: os.File.Fd would make it blocking
	pid      int      // 0: not running
	started  time.Time
}

// listen makes the socket, which every container of the pod that mounts the volume may use, whatever its user: they all belong to one job.
func (p *program) listen() error {
	hidden := p.socket + ".new"
	for _, old := range []string{hidden, p.socket} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	p.listener = listener
	if err := os.Chmod(hidden, 0o666); err != nil { //nolint:gosec // see above
		return err
	}
	if err := os.Rename(hidden, p.socket); err != nil {
		return err
	}
	return p.duplicate()
}

// duplicate makes the descriptor that the program inherits. It stays non-blocking, unlike that of UnixListener.File, so that the runtime can
// wait for it.
func (p *program) duplicate() error {
	raw, err := p.listener.SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	var failed error
	if err := raw.Control(func(own uintptr) { fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("duplicating the socket: %w", failed)
	}
	p.fd = uintptr(fd) //nolint:gosec // a file descriptor
	p.file = os.NewFile(p.fd, p.socket)
	return nil
}

func (p *program) close() {
	if p.pid != 0 {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	if p.listener != nil {
		_ = p.listener.Close()
		_ = os.Remove(p.socket)
	}
}

// awaitUse sends once there is a connection to accept. It accepts none: the program does. Its goroutine ends with the listener's file.
func (p *program) awaitUse(used chan<- use) {
	go func() {
		raw, err := p.file.SyscallConn()
		if err == nil {
			err = raw.Read(connected)
		}
		used <- use{p, err} // there is room: one at a time waits
	}()
}

// connected reports whether a connection can be accepted.
func connected(fd uintptr) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file descriptor
	n, err := unix.Poll(ready, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// start starts the program, by the agent's binary, with the socket.
func (p *program) start(self string) error {
	argv, err := p.argv()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	pid, err := syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), 1, 2, p.fd},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	p.pid, p.started = pid, time.Now()
	return nil
}

// refuse ends the connections that wait for a program that does not start: their clients would wait for ever.
func (p *program) refuse() {
	defer func() { _ = p.listener.SetDeadline(time.Time{}) }()
	for {
		if err := p.listener.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return
		}
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}
