package ledger

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// The cost of reading a target's jobs does not grow with the jobs of others: of other accounts, label sets and repositories, and of
// completed ones. Tuples are counted, not time.
func TestTargetJobs_ReadsNoOthersJobs(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(10, 20) n`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets VALUES ('["own"]', '{own}'), ('["other"]', '{other}')`)
	insert := func(first, last int, account int, repository, key, state string) {
		t.Helper()
		ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch,
			head_sha, label_key, state, queued_at, updated_at, completed_at)
			SELECT n, $3, $4, 1, 1, 'build', 'ci', 'main', 'abc', $5, $6, now() - interval '1 hour' + n * interval '1 ms', now(),
				CASE WHEN $6 = 'completed' THEN now() END FROM generate_series($1::int, $2::int) n`, first, last, account, repository, key, state)
	}
	insert(1, 3, 10, "a10/App", `["own"]`, "queued")
	insert(4, 5, 10, "a10/App", `["own"]`, "executing")
	insert(6, 6, 10, "a10/lib", `["own"]`, "executing")
	for i, state := range []string{"queued", "executing"} {
		base := 100_000 * (i + 1)
		insert(base, base+3000, 11, "a11/App", `["own"]`, state)
		insert(base+10_000, base+13_000, 10, "a10/App", `["other"]`, state)
	}
	insert(400_000, 406_000, 10, "a10/App", `["own"]`, "completed")
	ledgertest.Exec(t, url, `ANALYZE`)

	read := func(scope dispatch.DemandScope) (jobs, tuples int64) {
		t.Helper()
		scope.LabelKeys, scope.Most = []string{`["own"]`}, 50
		out := dispatch.TargetJobs{Sees: make([]bool, 1)}
		require.NoError(t, pgx.BeginFunc(t.Context(), store.pool, func(tx pgx.Tx) error {
			r := targetRead{q: store.queries().WithTx(tx), out: &out}
			require.NoError(t, r.places(t.Context(), []dispatch.DemandScope{scope}))
			require.NoError(t, r.jobs(t.Context()))
			require.NoError(t, r.seen(t.Context(), []int64{1, 400_000}))
			return tx.QueryRow(t.Context(), `SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
				FROM pg_stat_xact_user_tables WHERE relname = 'workflow_jobs'`).Scan(&tuples)
		}))
		require.Len(t, out.Seen, 2)
		return int64(len(out.Jobs)), tuples
	}
	jobs, tuples := read(dispatch.DemandScope{Login: "a10"})
	require.Equal(t, int64(6), jobs)
	require.LessOrEqual(t, tuples, int64(20))

	insert(500_000, 503_000, 10, "a10/lib", `["own"]`, "queued")
	insert(600_000, 603_000, 10, "a10/lib", `["own"]`, "executing")
	ledgertest.Exec(t, url, `ANALYZE`)
	jobs, tuples = read(dispatch.DemandScope{Login: "a10", Repository: "a10/app"})
	require.Equal(t, int64(5), jobs, "in whatever case its name is written")
	require.LessOrEqual(t, tuples, int64(20))
	jobs, tuples = read(dispatch.DemandScope{Login: "a10"})
	require.Equal(t, int64(100), jobs, "no further than it is asked to")
	require.LessOrEqual(t, tuples, int64(220))
}
