package periodic

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// Run works until ctx ends: then passes under way are cancelled, leadership is given up, and Run returns when all of
// that has happened. It waits for an unavailable database.
func (r *Runner) Run(ctx context.Context) error {
	if len(r.passes) == 0 && r.opts.Check == nil {
		<-ctx.Done() // nothing to work on, and so nothing to keep house for
		return nil
	}
	client, err := r.start(ctx)
	if client == nil {
		return err
	}
	// River's own stop begins with the end of ctx.
	defer func() { <-client.Stopped() }()
	for ctx.Err() == nil {
		if err := r.propose(ctx, client); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "passes wait for the database", "error", err)
		}
		r.rest(ctx)
	}
	return nil
}

// start waits until the database is there. It returns neither a client nor an error when ctx ends first.
func (r *Runner) start(ctx context.Context) (*river.Client[pgx.Tx], error) {
	for ctx.Err() == nil {
		client, err := r.newClient(r.workers())
		if err != nil {
			return nil, err // the configuration is wrong
		}
		if err = client.Start(ctx); err == nil {
			return client, nil
		}
		if ctx.Err() == nil {
			r.log.WarnContext(ctx, "passes wait for the database", "error", err)
		}
		r.rest(ctx)
	}
	return nil, nil //nolint:nilnil // said above
}

// rest waits for the time between two readings, a little more or less, so that replicas spread.
func (r *Runner) rest(ctx context.Context) {
	timer := time.NewTimer(r.pace.look/2 + rand.N(r.pace.look/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// propose queues what is due. Every replica does, for the passes of its own list.
func (r *Runner) propose(ctx context.Context, client *river.Client[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(ctx, r.pace.statement)
	defer cancel()
	found, err := look(ctx, r.opts.Pool, r.passes, r.pace, r.metrics.succeeded)
	if err != nil {
		return err
	}
	found, err = idle(ctx, r.opts.Pool, found)
	for _, d := range found {
		_, failed := client.Insert(ctx, passArgs{kind: kindPrefix + d.name, After: d.runs, Slot: d.slot}, nil)
		err = errors.Join(err, failed)
	}
	return err
}
