package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// Store implements dispatch.Store. It is safe for concurrent use.
type Store struct {
	pool     *routedPool
	defaults map[fleet.Platform]fleet.Limits // of new accounts, where they are not the product's own
	caps     bool                            // caps per repository are honoured

	mostLanes int64 // of one account
	full      fullAccounts

	reads *coalescer[string, dispatch.Claim]
	mints *coalescer[mintAnswer, mintOutcome]

	known atomic.Pointer[epoch.Mark] // CLAIM-17; nil: not guarded

	mu        sync.Mutex
	labelSets map[string]bool // keys known to be stored
	// repositories and when each was noted
	repositories map[fleet.Repository]time.Time
}

var _ dispatch.Store = (*Store)(nil)

// Open connects and checks that the server answers. maxConns of zero takes 16. The URL may lead through a connection pooler
// that pools transactions. The files of certificates that it names are read again for every connection. Errors to
// distinguish: ErrUnreachable, ErrUntrusted, ErrRefused.
func Open(ctx context.Context, url string, maxConns int32) (*Store, error) {
	if maxConns == 0 {
		maxConns = 16
	}
	pool, err := openRouted(ctx, url, maxConns)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: pool, mostLanes: dispatch.MaxLabelSets, full: fullAccounts{now: time.Now}, labelSets: map[string]bool{}, repositories: map[fleet.Repository]time.Time{}}
	s.reads = &coalescer[string, dispatch.Claim]{run: s.readClaims, most: 1, size: 256, patience: statementPatience}
	s.mints = &coalescer[mintAnswer, mintOutcome]{run: s.recordMints, most: 1, size: 256, patience: statementPatience}
	return s, nil
}

// OpenPool is Open for callers that hold connections of their own: the passes. The URL must not lead through a pooler that
// pools transactions: see Migrate.
func OpenPool(ctx context.Context, url string, maxConns int32) (*pgxpool.Pool, error) {
	cfg, err := poolConfig(url, maxConns)
	if err != nil {
		return nil, err
	}
	cfg.AfterConnect = steadyPlans
	return open(ctx, cfg)
}

func open(ctx context.Context, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, notConnected(cfg.ConnConfig.Host, err)
	}
	return pool, nil
}

// Close gives all connections back.
func (s *Store) Close() { s.pool.Close() }

// Route is how the store's newest connection reaches PostgreSQL.
func (s *Store) Route() Route { return s.pool.Route() }

// Ping reports whether Postgres answers.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// attempts bounds how often a transaction that met another is run again.
const attempts = 8

// A database that restarts, or fails over, is unavailable for seconds. A webhook that is refused in between is
// lost until it is redelivered, so transactions wait that out, within their caller's deadline.
const (
	outagePatience = 6 * time.Second
	outagePause    = 100 * time.Millisecond
)

// inTx runs fn in one READ COMMITTED transaction, again when it met another one or when the database was away. fn must
// be safe to repeat, also after a commit whose answer was lost.
func (s *Store) inTx(ctx context.Context, doing string, fn func(q *sqlcgen.Queries) error) error {
	var err error
	giveUp := time.Now().Add(outagePatience)
	for collisions := 0; ; {
		err = pipelined(ctx, s.pool.Pool, func(p *pipeline) error { return fn(sqlcgen.New(p)) }, s.pool.opening()...)
		if err == nil {
			return nil
		}
		switch {
		case collided(err) && collisions < attempts:
			collisions++
			continue
		case away(err) && time.Now().Before(giveUp):
			select {
			case <-ctx.Done():
			case <-time.After(outagePause):
				continue
			}
		}
		return fmt.Errorf("%s: %w", doing, unstorable(frozen(err)))
	}
}

// unstorable marks a refusal of the value itself, which no retry changes: text or a number that the database cannot
// represent, a forbidden NULL, a violated CHECK, a key that is too long for an index.
func unstorable(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "54") || pg.Code == "23502" || pg.Code == "23514") {
		return fmt.Errorf("%w: %w", fleet.ErrUnstorable, err)
	}
	return err
}

// away: the connection was lost or could not be made, or the server is stopping or starting.
func away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P0")
	}
	var unreachable *pgconn.ConnectError
	if errors.As(err, &unreachable) || pgconn.SafeToRetry(err) {
		return true
	}
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// collided: a deadlock, a serialization failure, two transactions giving one job to two claims (CLAIM-1 held), or one
// that removed a set of labels that the other uses.
func collided(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "23505" && pg.ConstraintName == "runner_claims_job" ||
		pg.Code == "23503" && (pg.ConstraintName == "workflow_jobs_label_key_fkey" || pg.ConstraintName == "job_lanes_label_key_fkey")
}

func (s *Store) queries() *sqlcgen.Queries { return sqlcgen.New(s.pool.single()) }

func found[T any](row T, err error) (T, bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		var zero T
		return zero, false, nil
	}
	return row, err == nil, err
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// JobState reads one job's state; JobAbsent when there is no row.
func (s *Store) JobState(ctx context.Context, jobID int64) (fleet.JobState, error) {
	row, ok, err := found(s.queries().Job(ctx, jobID))
	if err != nil || !ok {
		return fleet.JobAbsent, err
	}
	return fleet.JobState(row.State), nil
}

// ParkedLanes counts lanes by the reason for which a pick passes them over; lanes that are not parked have the empty
// reason.
func (s *Store) ParkedLanes(ctx context.Context) (map[string]int64, error) {
	rows, err := s.queries().ParkedLanes(ctx)
	if err != nil {
		return nil, err
	}
	lanes := make(map[string]int64, len(rows))
	for _, row := range rows {
		lanes[row.Parked] = row.Lanes
	}
	return lanes, nil
}
