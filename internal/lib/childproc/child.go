package childproc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Child is one process that this one started, the leader of a group of its own: a Ctrl-C in the terminal reaches the
// owner alone, who stops its children in order. Its methods may be called concurrently.
type Child struct {
	cmd     *exec.Cmd
	pid     int
	started string

	stopping atomic.Bool
	done     chan struct{} // closed when the process has been waited for
	err      error         // what Wait of the command said; to be read after done
}

// Start starts a command, and waits for its exit in the background. When this process dies, for whatever reason, the
// kernel sends the child deathSignal. Outside Linux there is no such service: the child lives on until the next owner
// kills what the record of processes names. The command's SysProcAttr may set more, such as another user.
func Start(cmd *exec.Cmd, deathSignal syscall.Signal) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr, deathSignal)

	c := &Child{cmd: cmd, done: make(chan struct{})}
	ready := make(chan error)
	go func() {
		// The kernel's "parent died" follows the thread that forked: keep it for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			ready <- err
			return
		}
		c.pid = cmd.Process.Pid
		// Before it is waited for: until then even a dead child keeps its PID. A stamp that cannot be read only means
		// that no later process recognises this one.
		c.started, _ = startStamp(c.pid)
		ready <- nil
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return c, nil
}

// StartLogged is Start with the output appended to a file, which is made private to the user.
func StartLogged(cmd *exec.Cmd, logPath string, deathSignal syscall.Signal) (*Child, error) {
	output, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer output.Close() // the child has a descriptor of its own
	cmd.Stdout, cmd.Stderr = output, output
	return Start(cmd, deathSignal)
}

// PID of the process.
func (c *Child) PID() int { return c.pid }

// Process is how to recognise it later, under a name for people.
func (c *Child) Process(name string) Process {
	return Process{Name: name, PID: c.pid, Started: c.started}
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exited reports whether the process has ended.
func (c *Child) Exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Wait returns when the process has ended, with the error of the command's Wait: nil for exit status 0.
func (c *Child) Wait() error {
	<-c.done
	return c.err
}

// Outcome waits for the end, and says for people what it was: "exit status 1", "signal: killed".
func (c *Child) Outcome() string {
	if err := c.Wait(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

// Signal reaches the process itself, not its group. Only the Child waits for it, so until it is done its PID is its
// own.
func (c *Child) Signal(signal syscall.Signal) {
	if !c.Exited() {
		_ = syscall.Kill(c.pid, signal) // it may have ended this instant
	}
}

// Stop ends the process: with a polite signal to it, and by killing its whole group once the grace is over or ctx ends;
// without a grace, at once. When it returns the process is gone. It reports whether force was needed.
func (c *Child) Stop(ctx context.Context, polite syscall.Signal, grace time.Duration) (forced bool) {
	c.stopping.Store(true)
	if c.Exited() {
		return false
	}
	if grace > 0 {
		c.Signal(polite)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.done:
			return false
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	_ = syscall.Kill(-c.pid, syscall.SIGKILL) // it may have ended this instant
	<-c.done
	return true
}

// Stopping reports whether Stop has been called: an end after that is no accident.
func (c *Child) Stopping() bool { return c.stopping.Load() }
