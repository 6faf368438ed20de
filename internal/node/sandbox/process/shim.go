//go:build unix

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// File descriptors that Start hands to the shim.
const (
	fdAlive   = 3 // writing end of the FIFO whose end-of-file says that the shim is gone
	fdControl = 4 // FIFO of orders, open for reading and writing so that it never ends
	fdReady   = 5 // pipe that is closed once the start, or its failure, is on record
)

// fdEntered is the writing end of a pipe that RunEnter has from the shim, closed when the container's program begins. What RunEnter writes to it
// is why the program cannot begin.
const fdEntered = 3

// Orders on the control FIFO, one byte each.
const (
	orderTerminate = 'T'
	orderKill      = 'K'
)

// startErrorCode is the exit code of a container whose command could not be executed, as container runtimes report it.
const startErrorCode = 128

// RunShim is the body of the shim process that stands between the node agent and one container: it starts the container whose record is in
// dir, waits for it, records its exit, kills its remaining processes, and returns. It must be the only thing that its process does, with
// the descriptors that Start passes.
func RunShim(dir string) error {
	for _, fd := range []int{fdAlive, fdControl, fdReady} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return errors.New("the shim is started by the node agent, not manually")
		}
		// The container must not inherit these: `alive` would outlive the shim in it.
		unix.CloseOnExec(fd)
	}
	ready := os.NewFile(fdReady, "ready")
	defer func() { _ = ready.Close() }()
	// Only `control` may end a container. Caught signals, unlike ignored ones, are back to default in the container.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	adoptOrphans()

	c := container{dir: dir}
	var s spec
	if found, err := readJSON(c.path(fileSpec), &s); err != nil || !found {
		return fmt.Errorf("reading the container's specification in %s: found=%t: %w", dir, found, err)
	}
	begun := time.Now()
	pid, entered, err := fork(s)
	if err != nil {
		return writeJSON(c.path(fileExit), startError(err, begun))
	}
	main := &process{pid: pid}
	go main.obey(os.NewFile(fdControl, fileControl)) // ends with this process
	// A reader of the start record may join the container's namespaces, so they must be complete.
	failure, _ := io.ReadAll(entered)
	_ = entered.Close()
	// The record of the start informs people; a full disk must not keep the shim from its duty.
	startedErr := writeJSON(c.path(fileStarted), started{PID: pid, StartedAt: begun})
	_ = ready.Close()
	debug.FreeOSMemory() // from here on the shim only waits, as one of many

	stop, timesKept := make(chan struct{}), make(chan error, 1)
	go func() { timesKept <- keepTimes(s.Log, c.path(fileTimes), time.Now, stop) }()
	exit := main.wait()
	exit.StartedAt = begun
	if len(failure) > 0 { // what exited was not the container's program
		exit = startError(errors.New(string(failure)), begun)
	}
	// Recorded before the remaining processes are killed: if the shim is killed at that moment, the exit is known.
	err = writeJSON(c.path(fileExit), exit)
	main.reapRest()
	close(stop)
	return errors.Join(startedErr, err, <-timesKept)
}

func startError(err error, at time.Time) sandbox.Exit {
	return sandbox.Exit{
		Code: startErrorCode, Reason: "StartError", Message: "starting the container's command: " + err.Error(),
		StartedAt: at, FinishedAt: time.Now(),
	}
}

// fork starts the container's main process as the leader of its own session and process group. The returned pipe ends when the container's
// own program begins, or has failed to.
func fork(s spec) (pid int, entered *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = null.Close() }()
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = log.Close() }()
	entered, entering, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = entering.Close() }()
	files := []uintptr{null.Fd(), log.Fd(), log.Fd()}
	if s.Inside != nil {
		files = append(files, entering.Fd()) // fdEntered
	}
	pid, err = syscall.ForkExec(s.Args[0], s.Args, &syscall.ProcAttr{
		Dir:   s.Dir,
		Env:   s.Env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = entered.Close()
		return 0, nil, fmt.Errorf("%s: %w", s.Args[0], err)
	}
	return pid, entered, nil
}

// process is the container's main process, a child of the shim.
type process struct {
	pid    int
	mu     sync.Mutex
	reaped bool // its id may be reused from now on
}

func (p *process) obey(control *os.File) {
	order := make([]byte, 1)
	for {
		if _, err := control.Read(order); err != nil {
			return
		}
		p.mu.Lock()
		if !p.reaped {
			switch order[0] {
			case orderTerminate:
				// The main process alone, as container runtimes do: a supervisor that lets its job finish needs the job alive.
				_ = syscall.Kill(p.pid, syscall.SIGTERM)
			case orderKill:
				_ = syscall.Kill(-p.pid, syscall.SIGKILL)
			}
		}
		p.mu.Unlock()
	}
}

// wait returns when the main process has ended, reaping adopted orphans on the way.
func (p *process) wait() sandbox.Exit {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // no child left, although the main one was never seen to end
			return unknownExit(time.Time{}, time.Now())
		}
		if pid != p.pid {
			continue
		}
		p.mu.Lock()
		p.reaped = true
		p.mu.Unlock()
		exit := sandbox.Exit{Code: int32(status.ExitStatus()), FinishedAt: time.Now()}
		if status.Signaled() {
			exit.Signal = int32(status.Signal())
			exit.Code = 128 + exit.Signal
		}
		return exit
	}
}

// reapRest ends what the main process left running, and returns when it is gone.
func (p *process) reapRest() {
	for {
		killRest(p.pid)
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

func unknownExit(startedAt, at time.Time) sandbox.Exit {
	return sandbox.Exit{
		Code: sandbox.UnknownExitCode, Unknown: true, Reason: "ContainerStatusUnknown",
		Message:   "the container's exit was not observed",
		StartedAt: startedAt, FinishedAt: at,
	}
}
