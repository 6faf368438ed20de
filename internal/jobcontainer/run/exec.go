package run

import (
	"context"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
)

// cancellation is how GitHub's runner ends a step that is cancelled (ProcessInvoker.cs): SIGINT, after 7.5 s SIGTERM, after 2.5 s more
// it kills. The hook passes on what it gets, and goes the same way by itself if it gets nothing more.
var cancellation = []struct {
	after  time.Duration // since the step before
	signal syscall.Signal
}{{0, syscall.SIGINT}, {7500 * time.Millisecond, syscall.SIGTERM}, {2500 * time.Millisecond, syscall.SIGKILL}}

// canceller decides which signals the processes of a step get.
type canceller struct{ sent int }

// received returns the signal to pass on, if it is new, for one that the hook got.
func (s *canceller) received(signal syscall.Signal) (pass syscall.Signal, is bool) {
	for i := s.sent; i < len(cancellation)-1; i++ {
		if cancellation[i].signal == signal {
			s.sent = i + 1
			return signal, true
		}
	}
	return 0, false
}

// next returns the signal that is due, and when, after the one that was sent last; false before the first and after the last.
func (s *canceller) next() (after time.Duration, signal syscall.Signal, is bool) {
	if s.sent == 0 || s.sent == len(cancellation) {
		return 0, 0, false
	}
	return cancellation[s.sent].after, cancellation[s.sent].signal, true
}

// exec runs a process of a step to its end. ctx cancels it like SIGINT does.
func (c *call) exec(ctx context.Context, guard Guard, process client.Process) (client.Exit, error) {
	type result struct {
		exit client.Exit
		err  error
	}
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	signals, done := make(chan syscall.Signal, len(cancellation)), make(chan result, 1)
	go func() { // ends with the process, at the latest when running ends
		exit, err := guard.Exec(running, process, client.Streams{Stdout: c.Stdout, Stderr: c.Stderr, Signals: signals})
		done <- result{exit, err}
	}()
	var s canceller
	var due <-chan time.Time
	asked := ctx.Done()
	killed := false
	pass := func(signal syscall.Signal, is bool) {
		if !is {
			return
		}
		signals <- signal // it has room for one of each
		if after, _, more := s.next(); more {
			due = time.After(after)
		}
	}
	for {
		select {
		case r := <-done:
			if killed {
				return client.Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL)}, nil
			}
			return r.exit, r.err
		case got := <-c.Signals:
			if signal, ok := got.(syscall.Signal); ok {
				pass(s.received(signal))
			}
		case <-asked:
			asked = nil
			if s.sent == 0 && len(c.Signals) == 0 {
				pass(s.received(syscall.SIGINT))
			}
		case <-due:
			_, signal, _ := s.next()
			if due = nil; signal == syscall.SIGKILL {
				killed = true
				kill() // the guard kills everything that the step has started when the connection ends
				continue
			}
			pass(s.received(signal))
		}
	}
}
