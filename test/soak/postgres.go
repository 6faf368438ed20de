package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/test/soak/check"
)

// historySQL has Postgres itself record every change of a claim, of a limit and of a job's state, in the transaction that makes it. The
// history holds exactly the committed changes, in order, so CLAIM-5 can be verified by counting. Rows are drained into a file, so that a
// restore of an older database removes none.
const historySQL = `
CREATE SCHEMA IF NOT EXISTS soak;
CREATE TABLE IF NOT EXISTS soak.history (
	id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	at  timestamptz NOT NULL DEFAULT clock_timestamp(),
	tab text NOT NULL, op text NOT NULL, old jsonb, new jsonb
);
CREATE OR REPLACE FUNCTION soak.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO soak.history (tab, op, new) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(NEW));
	ELSIF TG_OP = 'UPDATE' THEN
		INSERT INTO soak.history (tab, op, old, new) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW));
	ELSE
		INSERT INTO soak.history (tab, op, old) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(OLD));
	END IF;
	RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER soak_note AFTER INSERT OR UPDATE OR DELETE ON public.runner_claims FOR EACH ROW EXECUTE FUNCTION soak.note();
CREATE OR REPLACE TRIGGER soak_note AFTER INSERT OR UPDATE OR DELETE ON public.account_limits FOR EACH ROW EXECUTE FUNCTION soak.note();
CREATE OR REPLACE TRIGGER soak_note AFTER INSERT OR DELETE ON public.workflow_jobs FOR EACH ROW EXECUTE FUNCTION soak.note();
CREATE OR REPLACE TRIGGER soak_note_state AFTER UPDATE ON public.workflow_jobs FOR EACH ROW
	WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION soak.note();
`

// database is the one private PostgreSQL, which the soak stops, kills and puts back to an older state.
type database struct {
	dir     string
	history string // file

	mu     sync.Mutex // one operation at a time
	server *postgres.Server
}

func startDatabase(ctx context.Context, dir, history string) (*database, error) {
	d := &database{dir: dir, history: history}
	return d, d.start(ctx)
}

func (d *database) start(ctx context.Context) error {
	server, err := postgres.Start(ctx, postgres.Options{Dir: d.dir})
	if err != nil {
		return err
	}
	d.server = server
	return nil
}

// backend is where proxies reach it.
func (d *database) backend() (*backend, error) {
	at, err := url.Parse(d.server.URL())
	if err != nil {
		return nil, errors.New("the database's own URL cannot be read") // it holds a password: not repeated
	}
	return &backend{network: "unix", address: filepath.Join(at.Query().Get("host"), ".s.PGSQL.5432")}, nil
}

// through is the URL of the database behind a proxy.
func (d *database) through(address string) (string, error) {
	at, err := url.Parse(d.server.URL())
	if err != nil {
		return "", errors.New("the database's own URL cannot be read")
	}
	at.Host, at.RawQuery = address, "sslmode=disable"
	return at.String(), nil
}

func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, d.server.URL())
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	return conn, nil
}

// with runs f on a connection of its own.
func (d *database) with(ctx context.Context, f func(*pgx.Conn) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return f(conn)
}

func (d *database) exec(ctx context.Context, sql string, args ...any) error {
	return d.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// row reads one number.
func (d *database) row(ctx context.Context, into *int, sql string) error {
	return d.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql).Scan(into) })
}

// text reads one text.
func (d *database) text(ctx context.Context, into *string, sql string, args ...any) error {
	return d.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into) })
}

// observe installs the history, and writes down what there is already.
func (d *database) observe(ctx context.Context) error {
	if err := d.exec(ctx, historySQL); err != nil {
		return fmt.Errorf("installing the history of claims: %w", err)
	}
	return d.snapshot(ctx)
}

// snapshot notes every row as it is now: where the history begins, and begins again after a restore.
func (d *database) snapshot(ctx context.Context) error {
	return d.exec(ctx, `
		INSERT INTO soak.history (tab, op) VALUES ('', 'SNAPSHOT');
		INSERT INTO soak.history (tab, op, new) SELECT 'account_limits', 'ROW', to_jsonb(l) FROM account_limits l;
		INSERT INTO soak.history (tab, op, new) SELECT 'runner_claims', 'ROW', to_jsonb(c) FROM runner_claims c`)
}

// drain moves the history into its file. A row is deleted only after it was written, and a row that is written twice is
// known by its id.
func (d *database) drain(ctx context.Context) error {
	return d.with(ctx, func(conn *pgx.Conn) error { return d.drainWith(ctx, conn) })
}

func (d *database) drainWith(ctx context.Context, conn *pgx.Conn) error {
	for {
		rows, err := conn.Query(ctx, "SELECT id::text, at, tab, op, old, new FROM soak.history ORDER BY at LIMIT 5000")
		if err != nil {
			return fmt.Errorf("reading the history: %w", err)
		}
		changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (check.Change, error) {
			var c check.Change
			return c, row.Scan(&c.ID, &c.At, &c.Table, &c.Op, &c.Old, &c.New)
		})
		if err != nil {
			return fmt.Errorf("reading the history: %w", err)
		}
		if len(changes) == 0 {
			return nil
		}
		ids := make([]string, len(changes))
		for i := range changes {
			ids[i] = changes[i].ID
		}
		if err := appendLines(d.history, changes); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "DELETE FROM soak.history WHERE id = ANY($1::uuid[])", ids); err != nil {
			return fmt.Errorf("clearing the history: %w", err)
		}
	}
}

// dump is every row of every table of the product, as text: for the search for secrets, and for what is left.
func (d *database) dump(ctx context.Context) (map[string][]json.RawMessage, error) {
	all := map[string][]json.RawMessage{}
	err := d.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, table := range tables {
			rows, err := conn.Query(ctx, "SELECT to_jsonb(t) FROM public."+table+" t")
			if err != nil {
				return err
			}
			if all[table], err = pgx.CollectRows(rows, pgx.RowTo[json.RawMessage]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the whole database: %w", err)
	}
	return all, nil
}

// restart stops the server in order and starts it again.
func (d *database) restart(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.server.Stop(ctx), d.start(ctx))
}

// kill ends the postmaster, and with it everything, at once.
func (d *database) kill(ctx context.Context, away time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = syscall.Kill(d.server.PID(), syscall.SIGKILL)
	_ = d.server.Stop(ctx) // frees the directory
	pause(ctx, away)
	return d.start(ctx)
}

// revive restarts the server if it has exited, as one does that cannot write its log.
func (d *database) revive(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.server.Done():
	default:
		return nil
	}
	_ = d.server.Stop(ctx) // frees the directory
	return d.start(ctx)
}

// backup stops the server, copies its data and starts it again.
func (d *database) backup(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.server.Stop(ctx); err != nil {
		return err
	}
	return errors.Join(d.copyData(ctx, "data", "backup"), d.start(ctx))
}

// restore restores the database from its backup. Later changes are only in the history's file. No other client may be able to connect in
// between: the caller has closed the proxies.
func (d *database) restore(ctx context.Context, away time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	// No other client may commit between the last reading of the history and the end of the server.
	_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'bullpen'")
	if err == nil {
		err = d.drainWith(ctx, conn)
	}
	_ = conn.Close(ctx)
	if err := errors.Join(err, d.server.Stop(ctx)); err != nil {
		return fmt.Errorf("putting the database back: %w", err)
	}
	pause(ctx, away)
	return errors.Join(d.copyData(ctx, "backup", "data"), d.start(ctx))
}

// copyData replaces one directory of data by a copy of another, with its owners and rights.
func (d *database) copyData(ctx context.Context, from, to string) error {
	target := filepath.Join(d.dir, to)
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("removing %s: %w", target, err)
	}
	if output, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(d.dir, from), target).CombinedOutput(); err != nil {
		return fmt.Errorf("copying the database: %w: %s", err, output)
	}
	return nil
}

func (d *database) stop(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server.Stop(ctx)
}
