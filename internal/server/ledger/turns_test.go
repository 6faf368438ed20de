package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// CLAIM-17: while a transaction of a rebuilding is under way the hold cannot end, and its turn cannot be taken: what it
// writes is there before the first claim is made.
func TestRebuild_CLAIM17_TheHoldWaitsForWhatIsBeingWritten(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	row, err := store.Epoch(ctx)
	require.NoError(t, err)
	require.NoError(t, store.BeginHold(ctx, row.Mark, epoch.Decision{Over: row.Mark, Reason: "a test"}, time.Microsecond))
	turn, _, err := store.BeginRebuild(ctx, time.Microsecond, 0)
	require.NoError(t, err)
	require.NoError(t, store.EndRebuild(ctx, turn, row.Now, 0))
	turn, mine, err := store.BeginRebuild(ctx, time.Microsecond, 0)
	require.NoError(t, err)
	require.True(t, mine)

	blocker, err := store.pool.Begin(ctx) // the rebuilding stands at its first write, behind this
	require.NoError(t, err)
	t.Cleanup(func() { _ = blocker.Rollback(context.Background()) })
	_, err = blocker.Exec(ctx, `LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() {
		_, err := store.Rebuild(ctx, turn, dispatch.FoundRunner{
			Pod:     dispatch.Pod{Namespace: "runners", Name: "linux-1", UID: "6a8c4a6e-0000-4000-8000-000000000001", Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux"}},
			Pool:    dispatch.Pool{Namespace: "runners", Name: "linux", Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 1, MemoryMB: 1}},
			Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101},
			Runners: []roster.Found{{Registration: fleet.Registration{ID: 1, Name: "bp-1", Busy: true}, Scope: fleet.Scope{Owner: "acme"}}},
		}, time.Now())
		written <- err
	}()
	require.Eventually(t, func() bool { return waiting(t, store) == 1 }, patience, interval)

	ended := make(chan bool, 1)
	go func() {
		over, err := store.EndHold(ctx, row.Mark)
		ended <- err == nil && over
	}()
	taken := make(chan bool, 1)
	go func() {
		_, mine, err := store.BeginRebuild(ctx, time.Minute, 0)
		taken <- err == nil && mine
	}()
	require.Eventually(t, func() bool { return waiting(t, store) == 3 }, patience, interval, "both wait")
	require.Empty(t, ended)
	require.Empty(t, taken)
	require.NoError(t, blocker.Commit(ctx))
	require.NoError(t, await.Receive(t, written, "the write that waited is done"))
	require.True(t, await.Receive(t, ended, "the hold that waited ends"))
	await.Receive(t, taken, "the turn that waited is taken")
	claim, err := store.Claim(ctx, "6a8c4a6e-0000-4000-8000-000000000001")
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimExecuting, claim.State)
}

// CLAIM-17: a transaction's clock stands still from its beginning. One that began before another replica's hold or turn does not take either
// for that of a clock that was set back.
func TestBeginRebuild_CLAIM17_ATurnSinceTheTransactionBeganStands(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	row, err := store.Epoch(ctx)
	require.NoError(t, err)
	earlier, err := store.pool.Begin(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = earlier.Rollback(context.Background()) })
	_, err = earlier.Exec(ctx, `SELECT now()`)
	require.NoError(t, err)

	hold, lease := time.Hour, 30*time.Second
	require.NoError(t, store.BeginHold(ctx, row.Mark, epoch.Decision{Over: row.Mark, Reason: "a test"}, hold))
	_, mine, err := store.BeginRebuild(ctx, lease, 0)
	require.NoError(t, err)
	require.True(t, mine)

	q := sqlcgen.New(earlier)
	began, err := q.BeginHold(ctx, sqlcgen.BeginHoldParams{
		Hold: hold.Seconds(), OverLineage: row.Mark.Lineage, OverEpoch: row.Mark.Epoch, Reason: "a test", Lineage: row.Mark.Lineage, Epoch: row.Mark.Epoch,
	})
	require.NoError(t, err)
	require.Zero(t, began)
	_, err = q.BeginRebuild(ctx, lease.Seconds(), 0)
	require.ErrorIs(t, err, pgx.ErrNoRows)
}

// waiting counts sessions of this database that wait for a lock.
func waiting(t *testing.T, store *Store) int {
	t.Helper()
	rows, err := store.pool.Query(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	require.NoError(t, err)
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return n
}
