package guard

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// maxLogs is how much of the main process's output is kept, in bytes.
const maxLogs = 1 << 20

// service is the container's main process: what the image would have run.
type service struct {
	logs *ring

	mu    sync.Mutex
	child *child
	stop  syscall.Signal
	over  chan struct{} // closed when exit is set
	exit  *wire.Exit    // how it ended, or why it was not started
}

func (s *service) status() wire.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.exit != nil:
		exit := *s.exit
		return wire.Status{State: wire.StateExited, Exit: &exit}
	case s.child != nil:
		return wire.Status{State: wire.StateRunning}
	}
	return wire.Status{State: wire.StateNone}
}

// mayExec is nil unless the main process has ended: the container is over then, as with Docker.
func (s *service) mayExec() error {
	status := s.status()
	if status.State != wire.StateExited {
		return nil
	}
	return wire.Failf(wire.FailNotRunning, "the container is not running: its process ended with exit code %d", status.Exit.Code)
}

// start starts the main process, once.
func (g *guard) start(r *wire.Start) (wire.Status, error) {
	stop, err := wire.ParseSignal(r.StopSignal)
	if err != nil {
		return wire.Status{}, wire.Failf(wire.FailInvalid, "%v", err)
	}
	if err := g.startOnce(&r.Process, stop); err != nil {
		return wire.Status{}, err
	}
	return g.service.status(), nil
}

func (g *guard) startOnce(p *wire.Process, stop syscall.Signal) error {
	s := &g.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil || s.exit != nil {
		return wire.Failf(wire.FailStarted, "the container's process was started already")
	}
	keep := func(stderr bool) func([]byte) error {
		return func(frame []byte) error {
			s.logs.write(stderr, frame[wire.HeadLen:])
			return nil
		}
	}
	started, streams, err := g.background(p, keep(false), keep(true))
	var not *notStarted
	switch {
	case errors.As(err, &not):
		s.exit = &not.exit
		return nil
	case err != nil:
		return err
	}
	s.child, s.stop, s.over = started, stop, make(chan struct{})
	go g.awaitService(streams)
	return nil
}

// background starts a process whose output does not belong to a connection. Standard input is empty.
func (g *guard) background(p *wire.Process, stdout, stderr func([]byte) error) (*child, *pipes, error) {
	ready, err := g.prepare(p)
	if err != nil {
		return nil, nil, err
	}
	empty, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening standard input: %w", err)
	}
	defer func() { _ = unix.Close(empty) }()
	streams, err := newPipes(stdout, stderr)
	if err != nil {
		return nil, nil, err
	}
	started, err := g.spawn(ready, empty, streams.theirStdout, streams.theirStderr)
	if err != nil {
		streams.abandon()
		return nil, nil, err
	}
	streams.started()
	return started, streams, nil
}

// awaitService records the end of the main process. Nothing else of the container survives it, as with Docker.
func (g *guard) awaitService(streams *pipes) {
	s := &g.service
	<-s.child.done
	g.children.killAll()
	streams.settle(linger, &g.left)
	exit := g.children.wait(s.child)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit = &exit
	close(s.over)
	g.log.Info("the container's process has ended", "container", g.name, "code", exit.Code)
}

// stopService ends the main process: its stop signal, then SIGKILL for everything in the container.
func (g *guard) stopService(grace time.Duration) (wire.Status, error) {
	s := &g.service
	s.mu.Lock()
	running, over, signal := s.child, s.over, s.stop
	s.mu.Unlock()
	if running != nil {
		g.children.signal(running, false, signal)
		limit := time.NewTimer(grace)
		defer limit.Stop()
		select {
		case <-over:
		case <-limit.C:
		}
	}
	g.children.killAll()
	if running != nil {
		limit := time.NewTimer(killPatience)
		defer limit.Stop()
		select {
		case <-over:
		case <-limit.C:
			return s.status(), wire.Failf(wire.FailInternal, "the container's process could not be killed")
		}
	}
	return s.status(), nil
}

// sendLogs sends what is kept of the main process's output.
func (g *guard) sendLogs(conn *wire.Conn) {
	pieces, dropped := g.service.logs.content()
	if dropped > 0 {
		note := fmt.Sprintf("(the first %d bytes of this log were not kept)\n", dropped)
		if conn.Write(wire.KindStderr, []byte(note)) != nil {
			return
		}
	}
	for _, p := range pieces {
		kind := wire.KindStdout
		if p.stderr {
			kind = wire.KindStderr
		}
		if conn.Write(kind, p.data) != nil {
			return
		}
	}
	_ = conn.WriteJSON(wire.KindResult, wire.Empty{})
}
