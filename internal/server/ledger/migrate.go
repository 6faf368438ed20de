package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/bullpen-ci/bullpen/internal/server/periodic"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchemaBehind: the database lacks migrations that this binary has.
var ErrSchemaBehind = errors.New("the database schema is older than this server: run `bullpen server migrate`")

func provider(url string, migrations fs.FS) (*goose.Provider, func(), error) {
	cfg, err := parse(url)
	if err != nil {
		return nil, nil, err
	}
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, nil, fmt.Errorf("reading embedded migrations: %w", err)
	}
	db := stdlib.OpenDB(*cfg)
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir)
	if err != nil {
		_ = db.Close()
		return nil, nil, fmt.Errorf("loading migrations: %w", err)
	}
	return p, func() { _ = db.Close() }, nil
}

// migrationLock is the key of the advisory lock that lets one server migrate after the other.
const migrationLock = 0x62756c6c70656e

// Migrate brings the schema up to date: the ledger's own, then that of the job queue, in a schema of its own. Several
// servers may call it at once: the first does the work while the others wait. The URL must not lead through a pooler that pools transactions: a migration
// without a transaction sets lock_timeout for its session.
func Migrate(ctx context.Context, url string) error {
	lock, err := connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to migrate: %w", err)
	}
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }()
	if err := hears(ctx, url, lock); err != nil { // NET-9
		return fmt.Errorf("migrations need a session of their own: %w", err)
	}
	if err := takeTurn(ctx, lock); err != nil {
		return fmt.Errorf("waiting for other servers that migrate: %w", err)
	}
	p, done, err := provider(url, migrations)
	if err != nil {
		return err
	}
	defer done()
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return withQueue(ctx, url, func(m *rivermigrate.Migrator[pgx.Tx]) error {
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrating the job queue's tables: %w", err)
		}
		return nil
	})
}

// turnPause is how long a server that waits for another's migrations leaves the database alone.
const turnPause = 200 * time.Millisecond

// takeTurn waits for the lock, and returns it with a transaction that is idle from then on, which also works through a
// transaction-pooling proxy. It polls instead of waiting inside a statement. A statement has a snapshot, and an index that
// is built concurrently waits for every snapshot, while its owner would be waited for.
func takeTurn(ctx context.Context, conn *pgx.Conn) error {
	for {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		mine := false
		// By the simple protocol: the extended one keeps the portal, and with it the snapshot, until the transaction ends. A migration may take longer
		// than the database's user may be idle in a transaction.
		const ask = "SELECT pg_try_advisory_xact_lock($1), set_config('idle_in_transaction_session_timeout', '0', true)"
		if err := tx.QueryRow(ctx, ask, pgx.QueryExecModeSimpleProtocol, migrationLock).Scan(&mine, nil); err != nil || mine {
			return err
		}
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(turnPause):
		}
	}
}

// withQueue calls fn with River's own migrator.
func withQueue(ctx context.Context, url string, fn func(*rivermigrate.Migrator[pgx.Tx]) error) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to migrate: %w", err)
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: periodic.Schema, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return fmt.Errorf("loading the job queue's migrations: %w", err)
	}
	return fn(migrator)
}

// CheckSchema returns ErrSchemaBehind when migrations are missing.
func CheckSchema(ctx context.Context, url string) error {
	p, done, err := provider(url, migrations)
	if err != nil {
		return err
	}
	defer done()
	pending, err := p.HasPending(ctx)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if pending {
		return ErrSchemaBehind
	}
	return withQueue(ctx, url, func(m *rivermigrate.Migrator[pgx.Tx]) error {
		result, err := m.Validate(ctx, nil)
		if err != nil {
			return fmt.Errorf("reading the version of the job queue's tables: %w", err)
		}
		if !result.OK {
			return ErrSchemaBehind
		}
		return nil
	})
}
