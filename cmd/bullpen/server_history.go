package main

import (
	"context"
	"errors"

	"github.com/bullpen-ci/bullpen/internal/server/history"
)

func newHistory(r *replica) (*history.Recorder, error) {
	return history.New(history.Options{Store: r.store, Source: poolGauges{r}, Now: r.clock.Now})
}

// poolGauges reads the gauges of pools from the replica's watch, and the number of queued jobs from the demand that it computes for the controller.
type poolGauges struct{ r *replica }

func (p poolGauges) Gauges(ctx context.Context) (map[history.Pool]history.Gauges, error) {
	if !p.r.view.Synced() {
		return nil, errors.New("the watch of the cluster has not delivered its first list yet")
	}
	signals, err := p.r.dispatcher.Signals(ctx)
	if err != nil {
		return nil, err
	}
	gauges := p.r.view.PoolGauges()
	for _, pool := range signals.Pools {
		name := history.Pool{Namespace: pool.Namespace, Name: pool.Name}
		if g, known := gauges[name]; known {
			g.Queued = int64(pool.Queued)
			gauges[name] = g
		}
	}
	return gauges, nil
}
