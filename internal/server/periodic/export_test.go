package periodic

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Quicken makes the bounds of a test short. The lease stays what it is: on a busy machine a run may be silent for seconds,
// and one that loses its lock is cancelled, which a test's pass need not heed.
func (r *Runner) Quicken() {
	r.pace.look, r.pace.makeGood = 100*time.Millisecond, 300*time.Millisecond
	r.pace.slot = 2 * time.Second
	r.pace.heartbeat = 200 * time.Millisecond
}

// HoldInSilence takes the lock of a pass, and never shows that it lives.
func HoldInSilence(ctx context.Context, pool *pgxpool.Pool, pass string, lease time.Duration) error {
	_, err := takeTurn(ctx, pool, pass, lease)
	return err
}

// Queue asks for the run that follows a given one, as every replica does that finds it due at that time of the database.
func (r *Runner) Queue(ctx context.Context, pass string, after int64, at time.Time) error {
	_, err := r.inserter.Insert(ctx, passArgs{kind: kindPrefix + pass, After: after, Slot: at.Unix() / int64(r.pace.slot.Seconds())}, nil)
	return err
}
