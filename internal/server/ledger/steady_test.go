package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// The reads of a dispatch depend on what it dispatches: not on how much is queued or runs beside it, and not on the statistics. The planner
// is misled in both of the ways that happen: the tables were never analyzed, or when they were, they were all but empty; and connections
// have made their plans before the burst came.
func TestStore_P3_ADispatchReadsItsOwnRowsWhateverTheStatisticsSay(t *testing.T) {
	for name, statistics := range map[string]string{"there are none": "SELECT 1", "they are of small tables": "VACUUM ANALYZE"} {
		t.Run(name, func(t *testing.T) {
			few, many := rowsOfADispatch(t, statistics, 100), rowsOfADispatch(t, statistics, 4000)
			for table, rows := range many {
				if rows > 0 {
					t.Logf("%s: %d rows among 100 jobs and runners, %d among 4,000", table, few[table], rows)
				}
				require.LessOrEqual(t, rows, few[table]+100, "%s: what is read of it grows", table)
				require.LessOrEqual(t, rows, int64(50*each), "%s: more is read of it than fifty rows and entries a job", table)
			}
		})
	}
}

const each = 15 // jobs of a batch: an account may have some thirty runners by default

// rowsOfADispatch has those jobs dispatched, acknowledged and started, each by another runner than it was meant for, and returns
// how many rows and entries of indexes that took to read, by table. As many jobs as others says wait behind them, and as many
// runners have one.
func rowsOfADispatch(t *testing.T, statistics string, others int) map[string]int64 {
	t.Helper()
	ctx := t.Context()
	url := postgrestest.NewDatabase(t, Migrate)
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	store, err := Open(ctx, url, 1)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, batch := queueJobs(t, store, 2*each)
	crowd(t, conn, 0, 60)
	_, err = conn.Exec(ctx, statistics, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	polls := batch.Polls
	batch.Polls = polls[:each]
	dispatchAll(t, store, batch) // which makes the plans
	crowd(t, conn, 60, others)
	before := rowsRead(t, store, conn)
	batch.Polls = polls[each:]
	dispatchAll(t, store, batch)
	after := rowsRead(t, store, conn)
	for table := range after {
		after[table] -= before[table]
	}
	return after
}

func dispatchAll(t *testing.T, store *Store, batch dispatch.Batch) {
	t.Helper()
	ctx := t.Context()
	result, err := store.ClaimBatch(ctx, batch)
	require.NoError(t, err)
	require.Len(t, result.Claims, len(batch.Polls))
	now := time.Now()
	var answers []mintAnswer
	for i, claim := range result.Claims {
		answers = append(answers, mintAnswer{claimKey{claim.PodUID, claim.Generation}, claim.JobID, now})
		_, err := store.readClaims(ctx, []string{claim.PodUID, result.Claims[0].PodUID})
		require.NoError(t, err)
		if i%5 == 4 {
			_, err := store.recordMints(ctx, answers)
			require.NoError(t, err)
			answers = nil
		}
	}
	for _, claim := range result.Claims {
		won, err := store.Acknowledge(ctx, claim.PodUID, claim.Generation, now)
		require.NoError(t, err)
		require.True(t, won)
	}
	for i, claim := range result.Claims { // the jobs find each other's runners
		_, err := store.RecordJob(ctx, dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: now}, dispatch.JobEvent{
			Kind: fleet.JobEventStarted, Account: claim.Account, JobID: result.Claims[(i+1)%len(result.Claims)].JobID, Repository: "acme/app", RunID: 1,
			Labels: []string{"linux"}, QueuedAt: now, StartedAt: now, RunnerID: claim.JobID, RunnerName: claim.RunnerName,
		})
		require.NoError(t, err)
	}
}

// crowd has jobs of the account wait behind those that do, and as many runners of another one have a job.
func crowd(t *testing.T, conn *pgx.Conn, from, to int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
		 SELECT 1000000 + n, account_id, repository, run_id, 1, name, workflow, head_branch, head_sha, label_key, 'queued', now(), now()
		 FROM workflow_jobs, generate_series($1::bigint + 1, $2::bigint) n WHERE id = 1`,
		`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, minted_at)
		 SELECT 'other-' || n, 'runners', 'other-' || n, 'linux', 'minted', 1, 2, 'linux', 1000, 1024, '["linux"]', 2000000 + n, 'other-' || n, now(), now() FROM generate_series($1::bigint + 1, $2::bigint) n`,
		`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, runner_id, state, created_at)
		 SELECT 'other-' || n, 'other-' || n, 2, 'other', 1, n, 'alive', now() FROM generate_series($1::bigint + 1, $2::bigint) n`,
		`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id, started_at)
		 SELECT 'other-' || n, 'runners', 'other-' || n, 'linux', 2, 'linux', 1000, 1024, 'other-' || n, 2000000 + n, now() FROM generate_series($1::bigint + 1, $2::bigint) n`,
	} {
		_, err := conn.Exec(t.Context(), `WITH other AS (INSERT INTO accounts (id, login, kind, created_at, updated_at)
			VALUES (2, 'other', 'Organization', now(), now()) ON CONFLICT DO NOTHING) `+sql, from, to)
		require.NoError(t, err)
	}
}

// rowsRead is what was read since the database was made.
func rowsRead(t *testing.T, store *Store, conn *pgx.Conn) map[string]int64 {
	t.Helper()
	const flush = `SELECT pg_stat_force_next_flush()`
	_, err := store.pool.Exec(t.Context(), flush) // of the store's one connection
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), flush) // else what the crowd's foreign keys read is counted later: at most once a second
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `SELECT t.relname::text, t.seq_tup_read + coalesce(t.idx_tup_fetch, 0) + coalesce(sum(i.idx_tup_read), 0)
		FROM pg_stat_user_tables t LEFT JOIN pg_stat_user_indexes i USING (relid) GROUP BY t.relname, t.seq_tup_read, t.idx_tup_fetch`)
	require.NoError(t, err)
	read := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		read[table] = n
		return nil
	})
	require.NoError(t, err)
	return read
}

// A connection that the pool replaces plans like all others.
func TestOpen_PlansDoNotDependOnStatistics(t *testing.T) {
	store, err := Open(t.Context(), postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	for range 2 {
		got := map[string]string{}
		require.NoError(t, store.pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			for _, setting := range []string{"plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "jit", "max_parallel_workers_per_gather", "idle_in_transaction_session_timeout"} {
				var value string
				if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&value); err != nil {
					return err
				}
				got[setting] = value
			}
			return conn.Conn().Close(t.Context()) // the next one is new
		}))
		require.Equal(t, map[string]string{
			"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
			"max_parallel_workers_per_gather": "0", "idle_in_transaction_session_timeout": "1min",
		}, got)
	}
}
