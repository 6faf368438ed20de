package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// While a batch settles a lane, a job is unblocked into it that is older than what the batch sees. The lane's place in line
// is that job's, or other accounts would be served before it. So it is with a lane that is parked and with one that a job
// was claimed from.
func TestClaimBatch_ALaneKeepsThePlaceOfAJobThatCameBackConcurrently(t *testing.T) {
	for name, room := range map[string]int{"parked at its limit": 0, "claimed from": 9} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			url := postgrestest.NewDatabase(t, Migrate)
			conn, err := pgx.Connect(ctx, url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			store, err := Open(ctx, url, 2)
			require.NoError(t, err)
			t.Cleanup(store.Close)
			_, batch := queueJobs(t, store, 2)
			batch.Polls = batch.Polls[:1]
			exec := func(sql string) {
				t.Helper()
				_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
				require.NoError(t, err)
			}
			exec(fmt.Sprintf("UPDATE account_limits SET jobs = %d", room))
			exec("BEGIN") // as Release does
			exec(`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
				SELECT 1000, account_id, repository, run_id, 1, name, workflow, head_branch, head_sha, label_key, 'queued', to_timestamp(1600000000), now()
				FROM workflow_jobs WHERE id = 1`)
			exec("UPDATE job_lanes SET version = version + 1, head_at = to_timestamp(1600000000)")

			settled := make(chan error, 1)
			go func() {
				result, err := store.ClaimBatch(context.WithoutCancel(ctx), batch)
				if err == nil && len(result.Claims) != min(room, 1) {
					err = fmt.Errorf("%d claims", len(result.Claims))
				}
				settled <- err
			}()
			require.Eventually(t, func() bool { return waiting(t, store) == 1 }, patience, interval, "the batch waits for the lane")
			exec("COMMIT")
			require.NoError(t, await.Receive(t, settled, "the batch that waited is settled"))
			var head time.Time
			require.NoError(t, conn.QueryRow(ctx, "SELECT head_at FROM job_lanes").Scan(&head))
			require.Equal(t, int64(1_600_000_000), head.Unix())
		})
	}
}
