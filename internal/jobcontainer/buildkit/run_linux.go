package buildkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// Run starts the daemon when a job first connects, and again when it has exited and a job connects; and likewise what makes containers of
// actions that have a Dockerfile, if Options name a socket for it. It returns nil when the runner has ended,
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

// daemon is what runs in the container: BuildKit, and what makes containers of actions with it. It is used by one goroutine.
type daemon struct {
	o        Options
	runc     string
	root     string
	programs []*program
	used     chan use      // a program is to be started
	again    chan *program // one that has exited may be started again
}

// use is what awaitUse sends.
type use struct {
	of  *program
	err error
}

func newDaemon(o Options) (_ *daemon, err error) {
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
	if err := os.Remove(d.runc); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Symlink(o.Self, d.runc); err != nil {
		return nil, err
	}
	if o.ActionsSocket != "" { // before the one that the runner awaits
		d.programs = append(d.programs, &program{name: "the builder of actions", socket: o.ActionsSocket, argv: d.actions})
	}
	d.programs = append(d.programs, &program{name: "BuildKit", socket: o.Socket, argv: d.buildkitd})
	d.used, d.again = make(chan use, len(d.programs)), make(chan *program, len(d.programs))
	for _, p := range d.programs {
		if err := p.listen(); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
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

func (d *daemon) close() {
	for _, p := range d.programs {
		p.close()
	}
}

// serve returns when the runner has ended.
func (d *daemon) serve(runnerEnded <-chan struct{}, children <-chan os.Signal) error {
	look := time.NewTicker(reapEvery)
	defer look.Stop()
	for _, p := range d.programs {
		p.awaitUse(d.used)
	}
	for {
		select {
		case <-runnerEnded:
			d.o.Log.Info("the runner has ended")
			return nil
		case u := <-d.used:
			if u.err != nil {
				return fmt.Errorf("waiting for the first use of %s: %w", u.of.name, u.err)
			}
			d.start(u.of)
		case p := <-d.again:
			p.awaitUse(d.used)
		case <-children:
		case <-look.C:
		}
		d.reap()
	}
}

func (d *daemon) start(p *program) {
	err := p.start(d.o.Self)
	if err == nil {
		d.o.Log.Info(p.name + " is starting, since a job uses it")
		return
	}
	d.o.Log.Error(p.name+" cannot be started", "error", err)
	p.refuse()
	d.later(p)
}

// later lets a program be started again after a while. The channel has room for each of them.
func (d *daemon) later(p *program) { time.AfterFunc(d.o.Backoff, func() { d.again <- p }) }

// buildkitd is how to start BuildKit. It leaves a third of the storage, or a half, to what one build needs at a time: more than the storage would
// have the pod evicted, and BuildKit removes cache only between builds.
func (d *daemon) buildkitd() ([]string, error) {
	const megabyte = 1_000_000
	most := d.o.Storage / 3 * 2 / megabyte
	if d.o.ActionsSocket != "" { // whose images are exported and unpacked beside it
		most = d.o.Storage / 2 / megabyte
	}
	path, err := exec.LookPath(d.o.Program)
	if err != nil {
		return nil, fmt.Errorf("the image has no BuildKit: %w", err)
	}
	return []string{
		d.o.Self, "buildkit", "--exec", "--", path,
		"--addr", "fd://",
		"--root", d.root,
		"--containerd-worker=false",
		"--oci-worker=true",
		"--oci-worker-binary", d.runc,
		"--oci-worker-gc-keepstorage", strings.Join([]string{strconv.FormatInt(most/2, 10), "0", strconv.FormatInt(most, 10)}, ","),
	}, nil
}

// actions is how to start what makes containers of actions.
func (d *daemon) actions() ([]string, error) {
	return []string{d.o.Self, "dockerfile", "--root", filepath.Join(d.o.Root, "actions"), "--buildkit", d.o.Socket, "--runc", d.runc}, nil
}

// reap takes the status of all children that have ended, orphans included.
func (d *daemon) reap() {
	for _, child := range d.waited() {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(child, &status, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if pid <= 0 || err != nil {
				break
			}
			d.exited(pid, status)
		}
	}
}

func (d *daemon) exited(pid int, status syscall.WaitStatus) {
	for _, p := range d.programs {
		if p.pid != pid {
			continue
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL) // such as a build's client; containers have groups of their own
		p.pid = 0
		ran := time.Since(p.started)
		d.o.Log.Warn(p.name+" has exited: it is started again when it is used", "status", status.ExitStatus(), "signal", status.Signal().String(), "after", ran.String())
		if ran < d.o.Shortest {
			p.refuse()
		}
		d.later(p)
	}
}

// waited is every child of the first process of a container, whose orphans are its children; elsewhere the programs alone.
func (d *daemon) waited() []int {
	if os.Getpid() == 1 {
		return []int{-1}
	}
	var running []int
	for _, p := range d.programs {
		if p.pid != 0 {
			running = append(running, p.pid)
		}
	}
	return running
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
