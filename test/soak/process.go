package soak

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// restartPause is the delay before a part that has exited is restarted.
const restartPause = 300 * time.Millisecond

// part is one process that is kept running, except while a fault keeps it away.
type part struct {
	name    string
	command func() *exec.Cmd
	logPath string
	grace   time.Duration
	log     *slog.Logger

	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	child   *childproc.Child
	hold    time.Time // not started again before
	starts  int
	changed chan struct{} // closed and replaced by each start
}

func (s *System) startPart(name string, grace time.Duration, command func() *exec.Cmd) (*part, error) {
	p := &part{
		name: name, command: command, logPath: s.logFile(name), grace: grace, log: s.log,
		ended: make(chan struct{}), changed: make(chan struct{}),
	}
	first, err := p.start()
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(s.ctx)
	go func() {
		defer close(p.ended)
		p.keep(ctx, first)
	}()
	s.parts[name] = p
	return p, nil
}

func (p *part) start() (*childproc.Child, error) {
	child, err := childproc.StartLogged(p.command(), p.logPath, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = child
	p.starts++
	close(p.changed)
	p.changed = make(chan struct{})
	return child, nil
}

// keep starts the part again whenever it has ended.
func (p *part) keep(ctx context.Context, child *childproc.Child) {
	for {
		select {
		case <-ctx.Done():
			child.Signal(syscall.SIGCONT) // it may be frozen
			child.Stop(context.Background(), syscall.SIGTERM, p.grace)
			return
		case <-child.Done():
		}
		for {
			p.mu.Lock()
			wait := max(restartPause, time.Until(p.hold))
			p.mu.Unlock()
			if !pause(ctx, wait) {
				return
			}
			next, err := p.start()
			if err == nil {
				child = next
				break
			}
			p.log.Warn("a part could not be started", "part", p.name, "error", err)
		}
	}
}

// stop ends the part for good.
func (p *part) stop() {
	p.cancel()
	<-p.ended
}

func (p *part) current() *childproc.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// end sends a signal that ends the process, and keeps it away for a while. It returns when a successor was started.
func (p *part) end(ctx context.Context, signal syscall.Signal, away time.Duration) error {
	p.mu.Lock()
	p.hold = time.Now().Add(away)
	child, changed := p.child, p.changed
	p.mu.Unlock()
	child.Signal(signal)
	select {
	case <-changed:
		return nil
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the successor of %s: %w", p.name, ctx.Err())
	}
}

// freeze stops the process for a while, as a machine that swaps or a suspended VM does.
func (p *part) freeze(ctx context.Context, length time.Duration) {
	child := p.current()
	child.Signal(syscall.SIGSTOP)
	pause(ctx, length)
	child.Signal(syscall.SIGCONT)
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
