package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/testkit/postgrestest"
)

// A lane is parked while a job comes back to it that is older than what the batch sees: its place in line is that job's,
// or other accounts would be served before it once it has room.
func TestClaimBatch_AParkedLaneKeepsThePlaceOfAJobThatCameBackMeanwhile(t *testing.T) {
	ctx := t.Context()
	url := postgrestest.NewDatabase(t, Migrate)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	store, err := Open(ctx, url, 2)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, batch := queueJobs(t, store, 1)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	exec("UPDATE account_limits SET jobs = 0")
	exec("BEGIN") // as Release does
	exec(`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
		SELECT 1000, account_id, repository, run_id, 1, name, workflow, head_branch, head_sha, label_key, 'queued', to_timestamp(1600000000), now() FROM workflow_jobs`)
	exec("UPDATE job_lanes SET version = version + 1, head_at = to_timestamp(1600000000)")

	parked := make(chan error, 1)
	go func() {
		_, err := store.ClaimBatch(context.WithoutCancel(ctx), batch)
		parked <- err
	}()
	require.Eventually(t, func() bool { return waiting(t, store) == 1 }, patience, interval, "the batch waits for the lane")
	exec("COMMIT")
	require.NoError(t, <-parked)
	var head time.Time
	require.NoError(t, conn.QueryRow(ctx, "SELECT head_at FROM job_lanes").Scan(&head))
	require.Equal(t, int64(1_600_000_000), head.Unix())
}
