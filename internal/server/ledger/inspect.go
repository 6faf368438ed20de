package ledger

import (
	"context"
	"fmt"
	"time"
)

// SchemaState is what an inspection finds in a database, without changing it.
type SchemaState struct {
	Has, Needs int64     // the newest migration that was applied, and the newest that this binary has; 0: none was
	Now        time.Time // by the database's clock
	Route      Route     // how the database was reached
}

// InspectSchema reads the version of the ledger's schema. Unlike Migrate and CheckSchema it writes nothing, not even a
// missing table of versions. Errors say what prevents connecting, and hold no password.
func InspectSchema(ctx context.Context, url string) (SchemaState, error) {
	p, done, err := provider(url, migrations)
	if err != nil {
		return SchemaState{}, err
	}
	defer done()
	var state SchemaState
	for _, source := range p.ListSources() {
		state.Needs = max(state.Needs, source.Version)
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return SchemaState{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if state.Route, err = findRoute(ctx, conn.PgConn()); err != nil {
		return SchemaState{}, err
	}
	var there bool
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp(), to_regclass('goose_db_version') IS NOT NULL").Scan(&state.Now, &there); err != nil {
		return SchemaState{}, fmt.Errorf("reading the database's clock: %w", err)
	}
	if !there {
		return state, nil
	}
	const newest = "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied"
	if err := conn.QueryRow(ctx, newest).Scan(&state.Has); err != nil {
		return SchemaState{}, fmt.Errorf("reading the schema's version: %w", err)
	}
	return state, nil
}
