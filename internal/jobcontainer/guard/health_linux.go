package guard

import (
	"errors"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// healthLinger is how long the output of a health command is awaited after it has ended.
const healthLinger = 200 * time.Millisecond

// health runs a health command until it ends, its time is over, or the client is gone.
func (g *guard) health(conn *wire.Conn, r *wire.Health) (*wire.HealthResult, error) {
	if err := g.service.mayExec(); err != nil {
		return nil, err
	}
	end := newRing(wire.MaxHealthOutput + 2*(pieceSize+pieceCost))
	keep := func(frame []byte) error { end.write(false, frame[wire.HeadLen:]); return nil }
	started, streams, err := g.background(&r.Process, keep, keep)
	var not *notStarted
	if errors.As(err, &not) {
		return &wire.HealthResult{Exit: not.exit}, nil
	}
	if err != nil {
		return nil, err
	}
	lost := make(chan struct{})
	go func() { // ends with the connection
		defer close(lost)
		_, _, _ = conn.Read(0) // nothing but its end may come
	}()
	limit := time.NewTimer(r.Timeout)
	defer limit.Stop()
	result := &wire.HealthResult{}
	select {
	case <-started.done:
	case <-lost:
	case <-limit.C:
		result.TimedOut = true
	}
	// Not orphans: those may be of the main process. What a health command leaves in sessions of its own ends with the container.
	g.children.killTree(root{pid: started.pid, started: started.started})
	result.Exit = g.children.wait(started)
	streams.settle(healthLinger, &g.left)
	result.Output = end.tail(wire.MaxHealthOutput)
	return result, nil
}
