package buildkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
)

const (
	// listenDescriptor is the first that sd_listen_fds(3) passes on.
	listenDescriptor = 3
	// reapEvery is the interval at which orphans are reaped even if a signal was lost.
	reapEvery = time.Second
)

// ErrHostUsers: the process has no user namespace of the pod's own, so that root with SYS_ADMIN would be the node's (NET-7).
var ErrHostUsers = errors.New("the pod has no user namespace of its own: the node or the API server has ignored hostUsers: false, " +
	"which requires Kubernetes 1.33, containerd 2.0 or CRI-O 1.25, and Linux 6.3")

// Run starts the daemon when a job first connects, and again when it has exited and a job connects. It returns nil when the runner has ended,
// and when ctx ends before a runner was there. Once there is one, the end of ctx changes nothing, as it is a signal's: the kubelet sends
// TERM to all containers of a pod that is being deleted, while the job runs (JOB-2).
//
// What the daemon has started and left ends with this process, if it is the first of its container; the caller must exit then.
func Run(ctx context.Context, o Options) error {
	d, err := newDaemon(o)
	if err != nil {
		return fmt.Errorf("starting BuildKit: %w", err)
	}
	defer d.close()
	children := guard.IgnoreSignals()
	runnerEnded, err := awaitRunner(ctx, d.o)
	if err != nil || runnerEnded == nil {
		return err
	}
	return d.serve(runnerEnded, children)
}

// awaitRunner returns nil without an error if there is none: ctx has ended first, or the runner has.
func awaitRunner(ctx context.Context, o Options) (ended <-chan struct{}, err error) {
	look := time.NewTicker(o.LookEvery)
	defer look.Stop()
	var free time.Time // when the lock was first seen without an owner
	for {
		ended, err := volume.Watch(o.JobDir)
		switch {
		case err == nil:
			return ended, nil
		case !errors.Is(err, volume.ErrRunnerEnded):
			return nil, fmt.Errorf("waiting for the runner: %w", err)
		case errors.Is(err, fs.ErrNotExist):
			free = time.Time{}
		case free.IsZero():
			free = time.Now()
		case time.Since(free) > o.Settle:
			o.Log.Info("the runner has ended before it was seen")
			return nil, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// daemon is used by one goroutine.
type daemon struct {
	o        Options
	listener *net.UnixListener
	file     *os.File // the listener's, to wait for its first connection
	fd       uintptr  // the same, for the daemon to inherit: os.File.Fd would make it blocking
	runc     string
	root     string
	pid      int // 0: not running
	started  time.Time
}

func newDaemon(o Options) (*daemon, error) {
	if o.JobDir == "" || o.Socket == "" || o.Root == "" || o.StateDir == "" || o.Storage <= 0 {
		return nil, errors.New("volume, socket, root, state directory and storage are required")
	}
	o = o.withDefaults()
	if err := o.checkUsers(); err != nil {
		return nil, err
	}
	if o.Self == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the agent's binary: %w", err)
		}
		o.Self = self
	}
	d := &daemon{o: o, runc: filepath.Join(o.StateDir, RuncName)}
	if err := d.makeRoot(); err != nil {
		return nil, fmt.Errorf("making the directory of layers: %w", err)
	}
	if err := os.MkdirAll(o.StateDir, 0o755); err != nil { //nolint:gosec // nothing in it is secret
		return nil, fmt.Errorf("making the state directory: %w", err)
	}
	for _, old := range []string{d.runc, o.Socket} {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.Symlink(o.Self, d.runc); err != nil {
		return nil, err
	}
	return d, d.listen()
}

func (o Options) withDefaults() Options {
	if o.Program == "" {
		o.Program = "buildkitd"
	}
	if o.LookEvery == 0 {
		o.LookEvery = 20 * time.Millisecond
	}
	if o.Backoff == 0 {
		o.Backoff = time.Second
	}
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	if o.Shortest == 0 {
		o.Shortest = 10 * time.Second
	}
	if o.UIDMap == "" {
		o.UIDMap = "/proc/self/uid_map"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// checkUsers refuses a process whose root is the machine's: one whose map gives it every user (user_namespaces(7)).
func (o Options) checkUsers() error {
	text, err := os.ReadFile(o.UIDMap)
	if err != nil {
		return fmt.Errorf("reading the user namespace: %w", err)
	}
	if fields := strings.Fields(string(text)); len(fields) < 3 || fields[1] == "0" {
		return ErrHostUsers // NET-7
	}
	return nil
}

// makeRoot makes the daemon's directory in its volume. With a pod's fsGroup the volume has that group and the bit that hands it down, which
// would be in every layer that is built.
func (d *daemon) makeRoot() error {
	d.root = filepath.Join(d.o.Root, "buildkit")
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return err
	}
	if err := os.Chown(d.root, os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	return os.Chmod(d.root, 0o700) //nolint:gosec // a directory
}

// listen makes the socket, which every container of the pod that mounts the volume may use, whatever its user: they all belong to one job.
func (d *daemon) listen() error {
	hidden := d.o.Socket + ".new"
	_ = os.Remove(hidden)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	d.listener = listener
	if err := os.Chmod(hidden, 0o666); err != nil { //nolint:gosec // see above
		return err
	}
	if err := os.Rename(hidden, d.o.Socket); err != nil {
		return err
	}
	return d.duplicate()
}

// duplicate makes the descriptor that the daemon inherits. It stays non-blocking, unlike that of UnixListener.File, so that the runtime can
// wait for it.
func (d *daemon) duplicate() error {
	raw, err := d.listener.SyscallConn()
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
	d.fd = uintptr(fd) //nolint:gosec // a file descriptor
	d.file = os.NewFile(d.fd, d.o.Socket)
	return nil
}

func (d *daemon) close() {
	if d.pid != 0 {
		_ = syscall.Kill(-d.pid, syscall.SIGKILL)
	}
	_ = d.file.Close()
	_ = d.listener.Close()
	_ = os.Remove(d.o.Socket)
}

// serve returns when the runner has ended.
func (d *daemon) serve(runnerEnded <-chan struct{}, children <-chan os.Signal) error {
	look := time.NewTicker(reapEvery)
	defer look.Stop()
	used := d.awaitUse()
	var again <-chan time.Time
	for {
		select {
		case <-runnerEnded:
			d.o.Log.Info("the runner has ended")
			return nil
		case err := <-used:
			used = nil
			if err != nil {
				return fmt.Errorf("waiting for the first use of BuildKit: %w", err)
			}
			if err := d.start(); err != nil {
				d.o.Log.Error("BuildKit cannot be started", "error", err)
				d.refuse()
				again = time.After(d.o.Backoff)
			}
		case <-again:
			again, used = nil, d.awaitUse()
		case <-children:
		case <-look.C:
		}
		if d.reap() {
			again = time.After(d.o.Backoff)
		}
	}
}

// awaitUse sends nil when there is a connection to accept. It accepts none: the daemon does. Its goroutine ends with the listener's file.
func (d *daemon) awaitUse() <-chan error {
	used := make(chan error, 1)
	go func() {
		raw, err := d.file.SyscallConn()
		if err == nil {
			err = raw.Read(connected)
		}
		used <- err
	}()
	return used
}

// connected reports whether a connection can be accepted.
func connected(fd uintptr) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file descriptor
	n, err := unix.Poll(ready, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// start starts the daemon with the socket, which it takes over.
func (d *daemon) start() error {
	program, err := exec.LookPath(d.o.Program)
	if err != nil {
		return fmt.Errorf("the image has no BuildKit: %w", err)
	}
	argv := append([]string{d.o.Self, "buildkit", "--exec", "--", program}, d.arguments()...)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	pid, err := syscall.ForkExec(d.o.Self, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), 1, 2, d.fd},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	d.pid, d.started = pid, time.Now()
	d.o.Log.Info("BuildKit is starting, since a job uses it", "program", program)
	return nil
}

// arguments leave a third of the storage to what one build needs at a time: more than the storage would have the pod evicted, and BuildKit
// removes cache only between builds.
func (d *daemon) arguments() []string {
	const megabyte = 1_000_000
	most := d.o.Storage / 3 * 2 / megabyte
	return []string{
		"--addr", "fd://",
		"--root", d.root,
		"--containerd-worker=false",
		"--oci-worker=true",
		"--oci-worker-binary", d.runc,
		"--oci-worker-gc-keepstorage", strings.Join([]string{strconv.FormatInt(most/2, 10), "0", strconv.FormatInt(most, 10)}, ","),
	}
}

// reap takes the status of all children that have ended, orphans included, and reports whether the daemon is one of them.
func (d *daemon) reap() (exited bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(d.waited(), &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 || err != nil {
			return exited
		}
		if pid != d.pid {
			continue
		}
		d.pid, exited = 0, true
		ran := time.Since(d.started)
		d.o.Log.Warn("BuildKit has exited: it is started again when it is used", "status", status.ExitStatus(), "signal", status.Signal().String(), "after", ran.String())
		if ran < d.o.Shortest {
			d.refuse()
		}
	}
}

// waited is every child of the first process of a container, whose orphans are its children; elsewhere the daemon alone.
func (d *daemon) waited() int {
	if os.Getpid() == 1 {
		return -1
	}
	if d.pid == 0 {
		return os.Getpid() // no child has it
	}
	return d.pid
}

// refuse ends the connections that wait for a daemon that does not start: their clients would wait for ever.
func (d *daemon) refuse() {
	defer func() { _ = d.listener.SetDeadline(time.Time{}) }()
	for {
		if err := d.listener.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return
		}
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// Exec becomes the program, with the listening socket that this process was started with. It returns only if it cannot.
func Exec(argv []string) error {
	if len(argv) == 0 {
		return errors.New("starting BuildKit: no program")
	}
	env := append(os.Environ(), "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	if _, err := unix.FcntlInt(listenDescriptor, unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("starting BuildKit: passing its socket on: %w", err)
	}
	return fmt.Errorf("starting BuildKit: %w", syscall.Exec(argv[0], argv, env))
}
