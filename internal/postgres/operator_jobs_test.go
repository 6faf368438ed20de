package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/operator"
	"github.com/bullpen-ci/bullpen/internal/postgres/ledgertest"
	"github.com/bullpen-ci/bullpen/internal/postgres/sqlcgen"
)

// What listing the jobs that wait or run costs, and what looking at one of them costs, does not grow with those that have ended.
// Tuples are counted, not time.
func TestJobs_ReadsNoEndedOnes(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(10, 11) n`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets VALUES ('["own"]', '{own}')`)
	insert := func(first, last int, state string) {
		t.Helper()
		ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch,
			head_sha, label_key, state, queued_at, updated_at, completed_at)
			SELECT n, 10, 'a10/app', 1, 1, 'build', 'ci', 'main', 'abc', '["own"]', $3, now() - interval '1 hour' + n * interval '1 ms', now(),
				CASE WHEN $3 = 'completed' THEN now() END FROM generate_series($1::int, $2::int) n`, first, last, state)
	}
	insert(1, 3, "queued")
	insert(4, 5, "executing")
	insert(1000, 9000, "completed")
	ledgertest.Exec(t, url, `ANALYZE`)
	read := func(do func(q *sqlcgen.Queries) error) (tuples int64) {
		t.Helper()
		require.NoError(t, pgx.BeginFunc(t.Context(), store.pool, func(tx pgx.Tx) error {
			require.NoError(t, do(sqlcgen.New(tx)))
			return tx.QueryRow(t.Context(), `SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
				FROM pg_stat_xact_user_tables WHERE relname = 'workflow_jobs'`).Scan(&tuples)
		}))
		return tuples
	}
	require.LessOrEqual(t, read(func(q *sqlcgen.Queries) error {
		jobs, err := pageOfJobs(t.Context(), q, operator.JobQuery{Before: math.MaxInt64, Most: 100}, nil)
		require.Len(t, jobs, 5)
		return err
	}), int64(10))
	require.LessOrEqual(t, read(func(q *sqlcgen.Queries) error {
		older, err := q.OlderInLane(t.Context(), sqlcgen.OlderInLaneParams{LabelKey: `["own"]`, AccountID: 10, QueuedAt: time.Now(), ID: 3, Most: 100})
		require.EqualValues(t, 3, older)
		return err
	}), int64(10))
	require.LessOrEqual(t, read(func(q *sqlcgen.Queries) error {
		jobs, err := pageOfJobs(t.Context(), q, operator.JobQuery{Before: math.MaxInt64, Most: 100, Ended: true}, nil)
		require.Len(t, jobs, 100)
		return err
	}), int64(250), "a page of those that have ended is read from the end")
}
