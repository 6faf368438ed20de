package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/internal/lib/terminationlog"
)

const (
	// maxConns bounds the requests at a time.
	maxConns = 64
	// requestPatience bounds the wait for the request of a connection.
	requestPatience = 10 * time.Second
	// reapEvery is the interval at which orphans are reaped even if a signal was lost.
	reapEvery = time.Second
	// memoryGoal makes the garbage collector work harder beyond it, in bytes.
	memoryGoal = 24 << 20
	// requestWindow is the read buffer of a connection, in bytes.
	requestWindow = 4 << 10
)

// errNotFirst: the exit of a process kills its container only if it is the first process there.
var errNotFirst = errors.New("the guard is not the first process of its container: " +
	"a pod with job containers must not set shareProcessNamespace, and containers of it must not set targetContainerName")

// Run guards the container until a client asks for the end, and returns nil if the files of its processes are removed, or until the runner has ended,
// and returns a RunnerEndedError. The caller must exit then. The end of ctx changes nothing, as it is a signal's (JOB-2).
func Run(ctx context.Context, o Options) error {
	ctx = context.WithoutCancel(ctx)
	if o.Dir == "" {
		o.Dir = jobcontainer.Dir
	}
	if o.WantPatience == 0 {
		o.WantPatience = volume.WantPatience
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("guarding container %s: %w", o.Name, errNotFirst)
	}
	began := startOfLayer()
	signals := IgnoreSignals()
	syscall.Umask(jobcontainer.Umask)
	debug.SetMemoryLimit(memoryGoal)
	runnerEnded, err := volume.Watch(o.Dir)
	if err != nil {
		return notNeeded(o, err)
	}
	if err := volume.AwaitWanted(ctx, o.Dir, o.Name, o.WantPatience, runnerEnded); err != nil {
		return notNeeded(o, err)
	}
	listener, err := listen(filepath.Join(o.Dir, o.Name, filepath.Base(jobcontainer.Socket(o.Name))))
	if err != nil {
		return fmt.Errorf("guarding container %s: %w", o.Name, err)
	}
	o.Log.Info("ready: this log ends here", "container", o.Name)
	g := newGuard(o)
	if err := g.takeOutput(); err != nil {
		return fmt.Errorf("guarding container %s: %w", o.Name, err)
	}
	g.log = slog.New(slog.DiscardHandler)
	go g.accept(listener) // ends with this process
	if !g.watch(runnerEnded, signals) {
		return RunnerEndedError{} // the pod ends with its runner, and its files with it
	}
	return g.failed(g.clear(ctx, runnerEnded, began))
}

// failed makes an error the termination message, which kubectl describe pod shows: the log has ended.
func (g *guard) failed(err error) error {
	if err != nil && err.Error() != "" {
		_ = g.message.Set(err.Error())
	}
	return err
}

// clear gives back the disk of a container that a client has asked to end, in a pod that goes on. An error makes the exit code show that files
// may be left: the controller counts those containers (JOB-5).
func (g *guard) clear(ctx context.Context, runnerEnded <-chan struct{}, began layerStart) error {
	if g.dir != jobcontainer.Dir {
		g.log.Info("removing no files: the volume is not at a pod's place", "container", g.name, "dir", g.dir)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	go func() {
		select {
		case <-runnerEnded:
			cancel()
		case <-ctx.Done():
		}
	}()
	g.closing.Lock() // after the requests that write to it
	g.closed = true
	g.closing.Unlock()
	g.children.end(ctx)
	_ = g.message.Bound()
	files, err := openLayer("/", g.dir, began.since())
	if err == nil {
		err = files.clear(ctx)
	}
	select {
	case <-runnerEnded:
		return RunnerEndedError{}
	default:
	}
	if err != nil {
		return fmt.Errorf("ending container %s: %w", g.name, err)
	}
	return nil
}

// notNeeded turns the reasons of a late start into an exit with code 0: nothing is wrong.
func notNeeded(o Options, err error) error {
	if errors.Is(err, volume.ErrUnwanted) || errors.Is(err, volume.ErrRunnerEnded) {
		o.Log.Info("ending at once", "container", o.Name, "reason", err.Error())
		return nil
	}
	return fmt.Errorf("guarding container %s: %w", o.Name, err)
}

// IgnoreSignals leaves every signal without an effect, and has SIGCHLD delivered to the channel: it is for the first process of a container.
// The signals are not set to be ignored, which children would inherit. Go's runtime needs SIGURG for itself.
func IgnoreSignals() <-chan os.Signal {
	if os.Getpid() == 1 {
		defaultFaults()
	}
	var all []os.Signal
	for number := unix.Signal(1); number <= 64; number++ {
		if number != unix.SIGKILL && number != unix.SIGSTOP && number != unix.SIGURG && number != unix.SIGCHLD {
			all = append(all, number)
		}
	}
	signal.Notify(make(chan os.Signal, 1), all...) // no goroutine reads it: the runtime drops what does not fit
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	return children
}

// defaultFaults sets the default action for the signals of faults. Go's runtime takes one that a process has queued with a code of its own for a fault
// of the program, and ends. The kernel discards those that have the default action, for the first process of a PID namespace, unless it has the fault.
func defaultFaults() {
	var action [4]uint64 // struct sigaction of the kernel: SIG_DFL, and neither flags nor a mask
	for _, number := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSTKFLT, unix.SIGSYS} {
		const maskSize = 8
		//nolint:gosec // the standard library has no function for it
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&action)), 0, maskSize, 0, 0)
	}
}

// listen makes the socket, which every user of the pod's containers may use. It appears under its name when they may: a client that finds
// it must not be denied.
func listen(path string) (*net.UnixListener, error) {
	hidden := path + ".new"
	if err := os.Remove(hidden); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(hidden, 0o666); err != nil { //nolint:gosec // the runner is another user than the container
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Rename(hidden, path); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return listener, nil
}

type guard struct {
	name     string
	dir      string
	message  *terminationlog.File
	log      *slog.Logger
	children *children
	service  service
	relays   relays
	left     leftovers
	closing  sync.RWMutex  // read-locked by what writes to the container's own file system
	closed   bool          // nothing does any more
	end      chan struct{} // one element: a client has asked for the end, and has its answer
}

func newGuard(o Options) *guard {
	return &guard{
		name: o.Name, dir: o.Dir, message: terminationlog.Open(terminationlog.Path), log: o.Log, children: newChildren(), end: make(chan struct{}, 1),
		service: service{logs: newRing(maxLogs)},
	}
}

// watch reaps, and keeps the termination message small, until the end. It reports whether a client has asked for it.
func (g *guard) watch(runnerEnded <-chan struct{}, children <-chan os.Signal) (asked bool) {
	look := time.NewTicker(reapEvery)
	defer look.Stop()
	for {
		select {
		case <-runnerEnded:
			g.log.Info("the runner has ended", "container", g.name)
			return false
		case <-g.end:
			g.log.Info("asked to end", "container", g.name)
			return true
		case <-children:
		case <-look.C:
		}
		g.children.reap()
		if err := g.message.Bound(); err != nil {
			g.log.Debug("keeping the termination message small", "container", g.name, "error", err)
		}
	}
}

// writing does what changes the container's own file system, unless that is being cleared.
func (g *guard) writing(do func() error) error {
	g.closing.RLock()
	defer g.closing.RUnlock()
	if g.closed {
		return wire.Failf(wire.FailNotRunning, "the container is ending")
	}
	return do()
}

// accept serves connections until the process ends.
func (g *guard) accept(listener *net.UnixListener) {
	slots := make(chan struct{}, maxConns)
	for {
		slots <- struct{}{}
		conn, err := listener.Accept()
		if err != nil {
			g.log.Error("accepting a connection", "container", g.name, "error", err)
			<-slots
			<-time.After(acceptBackoff)
			continue
		}
		go func() {
			defer func() { <-slots }()
			g.serve(wire.NewConn(conn, requestWindow))
		}()
	}
}

// serve answers the one request of a connection.
func (g *guard) serve(conn *wire.Conn) {
	defer func() { _ = conn.Close() }()
	kind, payload, err := conn.Read(requestPatience)
	if err != nil {
		return
	}
	if kind != wire.KindRequest {
		g.refuse(conn, wire.Failf(wire.FailInvalid, "expected a request as the first frame"))
		return
	}
	request, err := wire.DecodeRequest(payload)
	if err != nil {
		g.refuse(conn, err)
		return
	}
	if request.Exec != nil {
		g.exec(conn, request.Exec)
		return
	}
	if request.Logs != nil {
		g.sendLogs(conn)
		return
	}
	result, err := g.answer(conn, request)
	if err != nil {
		g.refuse(conn, err)
		return
	}
	if err := conn.WriteJSON(wire.KindResult, result); err != nil {
		g.log.Warn("answering a request", "container", g.name, "error", err)
	}
	if request.End != nil {
		select {
		case g.end <- struct{}{}:
		default: // asked already
		}
	}
}

// answer does what has a single answer.
func (g *guard) answer(conn *wire.Conn, request *wire.Request) (any, error) {
	switch {
	case request.Start != nil:
		return g.start(request.Start)
	case request.Status != nil:
		return g.service.status(), nil
	case request.Health != nil:
		return g.health(conn, request.Health)
	case request.Stop != nil:
		return g.stopService(request.Stop.Grace)
	case request.End != nil:
		return g.stopService(request.End.Grace)
	case request.Links != nil:
		return wire.Empty{}, g.writing(func() error { return link(request.Links.Links) })
	case request.Hosts != nil:
		return wire.Empty{}, addHosts(hostsFile, request.Hosts.Entries)
	case request.Relay != nil:
		return wire.Empty{}, g.relays.open(*request.Relay)
	case request.Release != nil:
		return g.release(request.Release.User), nil
	}
	return nil, wire.Failf(wire.FailInvalid, "unknown operation")
}

// refuse sends a failure; one without a code is the guard's own.
func (g *guard) refuse(conn *wire.Conn, err error) {
	failure := new(wire.Failure)
	if !errors.As(err, &failure) {
		failure = wire.Failf(wire.FailInternal, "%v", err)
	}
	_ = conn.WriteJSON(wire.KindFailure, &wire.Failure{Code: failure.Code, Text: bounded(failure.Text)})
}

// maxText bounds a text for a client, in bytes.
const maxText = 8 << 10
