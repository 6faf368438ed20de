package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pipeline is one READ COMMITTED transaction that defers statements without a result and sends them with the next statement that has one:
// its BEGIN, statements without rows (:exec), and its COMMIT. Half of the time of a short transaction is round trips. Statements are
// executed one after another, each with a snapshot of its own, as if they had been sent one by one; the error of a deferred one is returned
// by the next, or by the commit, and aborts the transaction. It is for one goroutine.
type pipeline struct {
	conn    *pgx.Conn
	queued  []statement // were not sent yet
	opening int         // of those, BEGIN and what belongs to it
	begun   bool        // BEGIN was sent
}

type statement struct {
	sql  string
	args []any
}

// rollbackWithin bounds the rollback of a failed transaction.
const rollbackWithin = 5 * time.Second

// pipelined runs fn in a transaction on a connection of the pool, and commits it if fn returns no error. Statements that are given come first, with BEGIN.
func pipelined(ctx context.Context, pool *pgxpool.Pool, fn func(p *pipeline) error, first ...statement) (err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // which closes one that is still in a transaction
	p := &pipeline{conn: conn.Conn(), queued: append([]statement{{sql: "begin"}}, first...), opening: 1 + len(first)}
	defer func() {
		if err != nil {
			p.rollback(ctx)
		}
	}()
	if err := fn(p); err != nil {
		return err
	}
	return p.commit(ctx)
}

// silent: sqlc says of each statement whether its answer is read.
func silent(sql string) bool {
	first, _, _ := strings.Cut(sql, "\n")
	return strings.HasPrefix(first, "-- name: ") && strings.HasSuffix(first, " :exec")
}

// send sends what was put off, and one more, whose answer is the next of what it returns.
func (p *pipeline) send(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	var batch pgx.Batch
	for _, s := range p.queued {
		batch.Queue(s.sql, s.args...)
	}
	batch.Queue(sql, args...)
	waiting := len(p.queued)
	p.queued, p.begun = nil, true
	results := p.conn.SendBatch(ctx, &batch)
	return skip(waiting, results)
}

// skip reads the answers of the first statements, which are not needed. If one failed there are no results.
func skip(answers int, results pgx.BatchResults) (pgx.BatchResults, error) {
	for range answers {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // the same error
			return nil, err
		}
	}
	return results, nil
}

// Exec defers a statement whose answer is not read.
func (p *pipeline) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if silent(sql) {
		p.queued = append(p.queued, statement{sql, args})
		return pgconn.CommandTag{}, nil
	}
	return execResult(p.send(ctx, sql, args))
}

// execResult is the end of a batch.
func execResult(results pgx.BatchResults, err error) (pgconn.CommandTag, error) {
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if closed := results.Close(); err == nil {
		err = closed
	}
	return tag, err
}

// Query answers with rows that must be closed, or read to their end, before the next statement.
func (p *pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return queryResult(p.send(ctx, sql, args))
}

// queryResult is the end of a batch, whose rows are still to come.
func queryResult(results pgx.BatchResults, err error) (pgx.Rows, error) {
	if err != nil {
		return nil, err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // the same error
		return nil, err
	}
	return &pipelinedRows{Rows: rows, results: results}, nil
}

// QueryRow answers with one row.
func (p *pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := p.Query(ctx, sql, args...)
	return &pipelinedRow{rows, err}
}

// commit is the end: what was put off, and the COMMIT. A transaction that asked nothing has none.
func (p *pipeline) commit(ctx context.Context) error {
	if !p.begun && len(p.queued) == p.opening {
		return nil
	}
	tag, err := execResult(p.send(ctx, "commit", nil))
	if err == nil && tag.String() == "ROLLBACK" { // a statement had failed, unnoticed
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// rollback leaves the connection fit for the next, or closed.
func (p *pipeline) rollback(ctx context.Context) {
	if !p.begun || p.conn.IsClosed() || p.conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	if _, err := p.conn.Exec(ctx, "rollback"); err != nil {
		_ = p.conn.Close(ctx) // it is of no use
	}
}

// pipelinedRows end what they came with.
type pipelinedRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *pipelinedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *pipelinedRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = r.results.Close()
}

func (r *pipelinedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type pipelinedRow struct {
	rows pgx.Rows
	err  error
}

// Scan returns pgx.ErrNoRows if there is none.
func (r *pipelinedRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	r.rows.Close()
	return r.rows.Err()
}
