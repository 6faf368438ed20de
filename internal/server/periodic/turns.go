package periodic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// due is a pass whose next run may begin.
type due struct {
	name string
	runs int64 // begun until now
	slot int64 // of the database's time, see passArgs
}

// A run that began and did not finish either runs, which its lock shows, or died with its replica, and is repeated
// soon. A start in the future is by another clock (a database that failed over to a machine whose clock is behind):
// it blocks nothing.
const lookSQL = `
SELECT mine.name, p.name IS NULL, coalesce(p.runs, 0), extract(epoch FROM now())::bigint / $4,
    coalesce(p.succeeded_at, p.created_at, now()), CASE
    WHEN p.started_at IS NULL OR p.started_at > now() THEN true
    WHEN p.finished < p.runs THEN p.started_at + least(mine.every, $3) <= now()
    ELSE p.started_at + mine.every <= now()
END
FROM unnest($1::text[], $2::interval[]) AS mine (name, every)
LEFT JOIN passes p ON p.name = mine.name
ORDER BY mine.name`

// look says which of the passes are due, and calls seen with the time of each one's last success (or of its first
// sight, while there was none).
func look(ctx context.Context, pool *pgxpool.Pool, passes map[string]Pass, p pace, seen func(string, time.Time)) ([]due, error) {
	var (
		names  []string
		everys []time.Duration
	)
	for name, pass := range passes {
		names, everys = append(names, name), append(everys, pass.Every)
	}
	rows, err := pool.Query(ctx, lookSQL, names, everys, p.makeGood, int64(p.slot.Seconds()))
	if err != nil {
		return nil, fmt.Errorf("reading which passes are due: %w", err)
	}
	var (
		found        []due
		d            due
		succeeded    time.Time
		isNew, isDue bool
		unknown      []string
	)
	_, err = pgx.ForEachRow(rows, []any{&d.name, &isNew, &d.runs, &d.slot, &succeeded, &isDue}, func() error {
		seen(d.name, succeeded)
		if isNew {
			unknown = append(unknown, d.name)
		}
		if isDue {
			found = append(found, d)
		}
		return nil
	})
	if err == nil && len(unknown) > 0 { // an unstarted pass must become overdue, too, by its row's age
		_, err = pool.Exec(ctx, "INSERT INTO passes (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which passes are due: %w", err)
	}
	return found, nil
}

// idle leaves out the passes that are running: those whose lock is taken. The lock is released at once.
func idle(ctx context.Context, pool *pgxpool.Pool, found []due) ([]due, error) {
	var failed error
	free := slices.DeleteFunc(found, func(d due) bool {
		var locked bool
		err := pool.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1, hashtext($2))", lockClass, d.name).Scan(&locked)
		failed = errors.Join(failed, err)
		return !locked
	})
	return free, failed
}

// lockClass sets the passes' advisory locks apart from others.
const lockClass = 0x62756c6c

// turn is the right to run one pass: a transaction that holds the pass's advisory lock and does nothing else. It holds
// up no vacuum, for it has neither a snapshot nor an id, and it works through a transaction-pooling proxy.
type turn struct {
	conn *pgxpool.Conn
	tx   pgx.Tx
}

// errTaken: another run of that pass is under way.
var errTaken = errors.New("the pass is running elsewhere")

// takeTurn waits a moment for the lock: a replica that reads what is due takes it briefly, too.
func takeTurn(ctx context.Context, pool *pgxpool.Pool, name string, lease time.Duration) (*turn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("waiting for a connection: %w", err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("beginning a turn: %w", err)
	}
	t := &turn{conn: conn, tx: tx}
	// The database terminates the session of a holder that has been silent for the lease, as when its machine has disappeared: TCP alone
	// would let it hold the lock for hours.
	if _, err = tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = 1000; SET LOCAL idle_in_transaction_session_timeout = %d",
		lease.Milliseconds())); err == nil {
		_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, hashtext($2))", lockClass, name)
	}
	if err == nil {
		return t, nil
	}
	t.end(ctx)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		return nil, errTaken
	}
	return nil, fmt.Errorf("taking the lock of a pass: %w", err)
}

// hold shows the database that the holder lives until ctx ends; it returns early when the lock may be lost.
func (t *turn) hold(ctx context.Context, p pace) error {
	beat := time.NewTicker(p.heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		// Not ctx itself: a statement that is cut off closes the connection, and the lock would go before the pass has ended.
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.lease-p.heartbeat)
		_, err := t.tx.Exec(asked, "SELECT 1")
		cancel()
		if err != nil {
			return fmt.Errorf("holding the lock of a pass: %w", err)
		}
	}
}

// end gives the lock back.
func (t *turn) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.tx.Rollback(ctx) // a connection that fails at this loses the lock with its session
	t.conn.Release()
}

// begin takes the run that follows the given one. False: another replica has taken it.
func begin(ctx context.Context, pool *pgxpool.Pool, name string, after int64) (bool, error) {
	tag, err := pool.Exec(ctx, `
INSERT INTO passes AS p (name, runs, started_at) VALUES ($1, $2 + 1, now())
ON CONFLICT (name) DO UPDATE SET runs = excluded.runs, started_at = excluded.started_at WHERE p.runs = $2`, name, after)
	if err != nil {
		return false, fmt.Errorf("beginning a pass: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

func finish(ctx context.Context, pool *pgxpool.Pool, name string, run int64, ok bool) error {
	_, err := pool.Exec(ctx, `
UPDATE passes SET finished = $2, finished_at = now(), succeeded_at = CASE WHEN $3 THEN now() ELSE succeeded_at END
WHERE name = $1 AND finished < $2`, name, run, ok)
	if err != nil {
		return fmt.Errorf("recording the end of a pass: %w", err)
	}
	return nil
}
