package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// child is one process that this one started, in a process group of its own: a Ctrl-C in the terminal reaches the
// owner, which then stops its children in order.
type child struct {
	pid     int
	started string // the kernel's stamp of the start: with the pid it names this process and no later one

	stopping atomic.Bool
	done     chan struct{} // closed when the process has been waited for
	err      error         // how it ended; to be read after done
}

// startChild runs an executable with its output appended to a log file.
func startChild(path string, args []string, logPath string) (*child, error) {
	output, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer output.Close()                   // the child has a descriptor of its own
	command := exec.Command(path, args...) //nolint:noctx // it outlives the context of its start; stop ends it
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(command.SysProcAttr)

	c := &child{done: make(chan struct{})}
	ready := make(chan error)
	go func() {
		// The kernel's "parent died" signal follows the thread that forked: keep it for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := command.Start(); err != nil {
			ready <- err
			return
		}
		c.pid = command.Process.Pid
		ready <- nil
		err := command.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		c.err = err
		close(c.done)
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	// The child cannot have been replaced yet: nobody else waits for it, so even dead it keeps its pid until Wait.
	// A start stamp that cannot be read only means that a later start will not recognise this process.
	c.started, _ = startStamp(c.pid)
	return c, nil
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) expected() bool { return c.stopping.Load() }

func (c *child) result() error {
	<-c.done
	return c.err
}

// stop ends the process: orderly, and by force once the grace is over or ctx ends. It returns when the process is
// gone, and whether force was needed.
func (c *child) stop(ctx context.Context, grace time.Duration) (killed bool) {
	c.stopping.Store(true)
	if c.exited() {
		return false
	}
	if grace > 0 {
		signalGroup(c.pid, syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.done:
			return false
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	signalGroup(c.pid, syscall.SIGKILL)
	<-c.done
	return true
}

// signalGroup signals a whole process group. That it may be gone already is no error.
func signalGroup(pid int, signal syscall.Signal) {
	_ = syscall.Kill(-pid, signal)
}
