package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchemaBehind: the database needs migrations that this binary has and nobody has run.
var ErrSchemaBehind = errors.New("the database schema is older than this server: run `bullpen server migrate`")

func provider(url string) (*goose.Provider, func(), error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, errors.New("the database URL is not one that Postgres understands")
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

// Migrate brings the schema up to date. Several servers may call it at once: the first does the work.
func Migrate(ctx context.Context, url string) error {
	p, done, err := provider(url)
	if err != nil {
		return err
	}
	defer done()
	if _, err := p.Up(ctx); err != nil {
		// A server that migrated at the same moment may have won; what counts is where the schema stands now.
		if pending, perr := p.HasPending(ctx); perr != nil || pending {
			return fmt.Errorf("migrating the database: %w", err)
		}
	}
	return nil
}

// CheckSchema returns ErrSchemaBehind when migrations are missing.
func CheckSchema(ctx context.Context, url string) error {
	p, done, err := provider(url)
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
	return nil
}
