package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// process is one script of a step, in a process group of its own so that all it started can be ended with it.
type process struct {
	args []string
	dir  string
	env  []string
	out  io.Writer
	// input is what it reads on standard input; nothing by default.
	input []byte
	// alone has the first process signaled, and not its whole group; SIGKILL is for the group in any case.
	alone bool
}

// groups are process groups that outlived their script: a server that a step left running for later steps.
type groups struct{ ids []int }

// run runs the script and returns its exit code. When stop is closed, or hard is done, the group is ended: SIGINT,
// then SIGTERM, then SIGKILL, each after its grace.
func (r *Runner) run(hard context.Context, p process, stop <-chan struct{}, left *groups) (int, error) {
	if r.opts.Within != nil && p.input == nil {
		if code, ran := r.within(hard, p.args, stop); ran {
			return code, nil
		}
	}
	// It is r.end that ends it, with its whole group; a context would kill the shell alone.
	cmd := exec.CommandContext(context.WithoutCancel(hard), p.args[0], p.args[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	// One writer for both keeps their lines in the order in which they were written.
	cmd.Stdout, cmd.Stderr = p.out, p.out
	if p.input != nil {
		cmd.Stdin = bytes.NewReader(p.input)
	}
	cmd.WaitDelay = r.opts.StreamGrace
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return -1, fmt.Errorf("starting %s: %w", p.args[0], err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	signaled := -cmd.Process.Pid
	if p.alone {
		signaled = cmd.Process.Pid
	}
	var err error
	select {
	case err = <-done:
		// While the group has a member its number cannot be given to another, so what is alive now is still ours later.
		if syscall.Kill(-cmd.Process.Pid, 0) == nil {
			left.ids = append(left.ids, cmd.Process.Pid)
		}
	case <-stop:
		err = r.end(hard, cmd.Process.Pid, signaled, done)
	case <-hard.Done():
		err = r.end(hard, cmd.Process.Pid, signaled, done)
	}
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) && !errors.Is(err, exec.ErrWaitDelay) {
		return -1, fmt.Errorf("running %s: %w", p.args[0], err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// within has Options.Within run the script, until stop is closed or hard is done.
func (r *Runner) within(hard context.Context, args []string, stop <-chan struct{}) (code int, ran bool) {
	ctx, cancel := context.WithCancel(hard)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	code, ran = r.opts.Within(ctx, args)
	cancel()
	<-ended
	return code, ran
}

// end ends a process group, step by step, and returns what its script's Wait returned. signaled is what gets the signals before SIGKILL.
func (r *Runner) end(hard context.Context, group, signaled int, done <-chan error) error {
	for _, s := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGINT, r.opts.InterruptGrace}, {syscall.SIGTERM, r.opts.TerminateGrace}} {
		_ = syscall.Kill(signaled, s.signal) // a group that is gone needs no signal
		select {
		case err := <-done:
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return err
		case <-r.opts.After(s.grace):
		case <-hard.Done():
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	return <-done
}

// clean ends the groups that are left when the job is over.
func (g *groups) clean() int {
	ended := 0
	for _, id := range g.ids {
		if syscall.Kill(-id, syscall.SIGKILL) == nil {
			ended++
		}
	}
	g.ids = nil
	return ended
}
