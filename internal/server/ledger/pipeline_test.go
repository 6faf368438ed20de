package ledger

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

const (
	putOff = "-- name: Put :exec\nINSERT INTO numbers VALUES ($1)"
	asked  = "-- name: Numbers :many\nSELECT n FROM numbers ORDER BY n"
)

// countingConn counts what is sent: each time is a way to the server.
type countingConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}

func newNumbers(t *testing.T) (*pgxpool.Pool, *atomic.Int64) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(postgrestest.NewDatabase(t, nil))
	require.NoError(t, err)
	cfg.MaxConns = 1 // what one transaction leaves behind is the next one's
	var sent atomic.Int64
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return countingConn{conn, &sent}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE TABLE numbers (n bigint PRIMARY KEY)")
	require.NoError(t, err)
	return pool, &sent
}

func numbers(t *testing.T, pool *pgxpool.Pool) []int64 {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT n FROM numbers ORDER BY n")
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	return found
}

func put(t *testing.T, p *pipeline, n int64) {
	t.Helper()
	_, err := p.Exec(t.Context(), putOff, n)
	require.NoError(t, err, "it was not sent yet")
}

// A transaction is as many ways to the server as it has answers to wait for, and one for its end.
func TestPipeline_SendsDeferredStatementsTogether(t *testing.T) {
	pool, sent := newNumbers(t)
	n := int64(0)
	transaction := func() int64 {
		before := sent.Load()
		require.NoError(t, pipelined(t.Context(), pool, func(p *pipeline) error {
			for range 2 {
				put(t, p, n)
				n++
			}
			rows, err := p.Query(t.Context(), asked)
			require.NoError(t, err)
			seen, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			require.NoError(t, err)
			require.Len(t, seen, int(n), "what was put off is done before")
			put(t, p, n)
			n++
			return nil
		}))
		return sent.Load() - before
	}
	transaction() // prepares the statements
	require.EqualValues(t, 2, transaction())
	require.Len(t, numbers(t, pool), 6)
	before := sent.Load()
	require.NoError(t, pipelined(t.Context(), pool, func(*pipeline) error { return nil }))
	require.Equal(t, before, sent.Load(), "one that asks nothing says nothing")
}

// The error of a deferred statement is returned, and nothing of the transaction stays; the connection serves the next.
func TestPipeline_NothingOfAFailedTransactionStays(t *testing.T) {
	pool, _ := newNumbers(t)
	var pg *pgconn.PgError
	duplicate := func(err error) {
		t.Helper()
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "23505", pg.Code)
	}
	for name, fn := range map[string]func(p *pipeline) error{
		"heard at the next question": func(p *pipeline) error {
			put(t, p, 1)
			put(t, p, 1)
			_, err := p.Query(t.Context(), asked)
			duplicate(err)
			return err
		},
		"heard at the next row": func(p *pipeline) error {
			put(t, p, 1)
			put(t, p, 1)
			var n int64
			err := p.QueryRow(t.Context(), asked).Scan(&n)
			duplicate(err)
			return err
		},
		"heard at the next count": func(p *pipeline) error {
			put(t, p, 1)
			put(t, p, 1)
			_, err := p.Exec(t.Context(), "-- name: Drop :execrows\nDELETE FROM numbers")
			duplicate(err)
			return err
		},
		"heard at the end": func(p *pipeline) error {
			put(t, p, 1)
			put(t, p, 1)
			return nil
		},
		"of a question itself": func(p *pipeline) error {
			put(t, p, 1)
			_, err := p.Exec(t.Context(), "-- name: Put :execrows\nINSERT INTO numbers VALUES (1)")
			duplicate(err)
			return err
		},
	} {
		duplicate(pipelined(t.Context(), pool, fn))
		require.Empty(t, numbers(t, pool), name)
	}
	require.ErrorIs(t, pipelined(t.Context(), pool, func(p *pipeline) error {
		put(t, p, 1)
		put(t, p, 1)
		_, _ = p.Query(t.Context(), asked) // the result is ignored
		return nil
	}), pgx.ErrTxCommitRollback)
	refused := errors.New("no")
	require.ErrorIs(t, pipelined(t.Context(), pool, func(p *pipeline) error {
		put(t, p, 1)
		rows, err := p.Query(t.Context(), asked)
		require.NoError(t, err)
		rows.Close()
		return refused
	}), refused)
	require.Empty(t, numbers(t, pool))
	require.NoError(t, pipelined(t.Context(), pool, func(p *pipeline) error { put(t, p, 7); return nil }))
	require.Equal(t, []int64{7}, numbers(t, pool))
}

// Rows may be left before their end, there may be none, and a caller that gives up in the middle leaves a pool that
// works.
func TestPipeline_LeavesTheConnectionFit(t *testing.T) {
	pool, _ := newNumbers(t)
	require.NoError(t, pipelined(t.Context(), pool, func(p *pipeline) error {
		var n int64
		require.ErrorIs(t, p.QueryRow(t.Context(), asked).Scan(&n), pgx.ErrNoRows)
		for i := range int64(5) {
			put(t, p, i)
		}
		rows, err := p.Query(t.Context(), asked)
		require.NoError(t, err)
		require.True(t, rows.Next())
		rows.Close()
		require.NoError(t, rows.Err())
		require.NoError(t, p.QueryRow(t.Context(), "-- name: Sum :one\nSELECT sum(n)::bigint FROM numbers").Scan(&n))
		require.EqualValues(t, 10, n)
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, pipelined(ctx, pool, func(p *pipeline) error {
		put(t, p, 100)
		rows, err := p.Query(ctx, asked)
		require.NoError(t, err)
		rows.Close()
		cancel()
		_, err = p.Query(ctx, asked)
		return err
	}), context.Canceled)
	require.ErrorIs(t, pipelined(ctx, pool, func(*pipeline) error { return nil }), context.Canceled, "no connection is taken")
	require.Len(t, numbers(t, pool), 5)
}
