package ledger

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// Replicas that start together on an empty database all come up, with the job queue's tables in their own schema.
func TestMigrate_SeveralServersAtOnce(t *testing.T) {
	t.Parallel()
	url := postgrestest.NewDatabase(t, nil)
	require.ErrorIs(t, CheckSchema(t.Context(), url), ErrSchemaBehind)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error { return Migrate(t.Context(), url) })
	}
	require.NoError(t, await.Call(t, group.Wait, "the migrations return"))
	require.NoError(t, CheckSchema(t.Context(), url))
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'river%'"))

	ledgertest.Exec(t, url, "DELETE FROM river.river_migration WHERE version > 5")
	require.ErrorIs(t, CheckSchema(t.Context(), url), ErrSchemaBehind, "the job queue's tables count, too")
}

// The lock is a transaction that is idle while the migrations run, for as long as they take.
func TestMigrate_KeepsItsLockHoweverLongItsUserMayBeIdle(t *testing.T) {
	url := postgrestest.NewDatabase(t, nil)
	postgrestest.Execute(t, url, `DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET idle_in_transaction_session_timeout = 60000', current_database()); END $$`)
	conn, err := connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	shown := func() (setting string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW idle_in_transaction_session_timeout").Scan(&setting))
		return setting
	}
	require.Equal(t, "1min", shown())
	require.NoError(t, takeTurn(t.Context(), conn))
	require.Equal(t, "0", shown())
}
