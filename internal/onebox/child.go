package onebox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Command is how to start one process.
type Command struct {
	// Name is the part's: "server".
	Name string
	// Path of the executable and its arguments, without secrets: those are in files.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// LogPath is appended to.
	LogPath string
	// Grace is how long the process may take to end after SIGTERM.
	Grace time.Duration
}

// child is one running process of ours, the leader of its own group: a Ctrl-C in the terminal reaches us alone, and we
// stop the processes in order.
type child struct {
	pid  int
	done chan struct{} // closed when it has been waited for
	err  error         // how it ended; to be read after done
}

func startChild(command Command) (*child, error) {
	output, err := os.OpenFile(command.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer output.Close()                                   // the child has a descriptor of its own
	process := exec.Command(command.Path, command.Args...) //nolint:noctx // it outlives the context of its start; stop ends it
	process.Env = command.Env
	process.Stdout, process.Stderr = output, output
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(process.SysProcAttr)

	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's "parent died" signal follows the thread that forked: keep it for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := process.Start(); err != nil {
			started <- err
			return
		}
		c.pid = process.Process.Pid
		started <- nil
		c.err = process.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// signal reaches the process itself. Nobody else waits for it, so until done is closed its pid is its own.
func (c *child) signal(signal syscall.Signal) {
	select {
	case <-c.done:
	default:
		_ = syscall.Kill(c.pid, signal) // it may have ended this instant
	}
}

// stop ends the process: politely, and by force once the grace is over or ctx ends. When it returns the process is gone.
func (c *child) stop(ctx context.Context, grace time.Duration) (forced bool) {
	c.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return false
	case <-timer.C:
	case <-ctx.Done():
	}
	c.signal(syscall.SIGKILL)
	<-c.done
	return true
}

// howItEnded is for people: "exit status 1", "signal: killed".
func (c *child) howItEnded() string {
	<-c.done
	var exit *exec.ExitError
	switch {
	case c.err == nil:
		return "exit status 0"
	case errors.As(c.err, &exit):
		return exit.String()
	default:
		return c.err.Error()
	}
}
