package ledgertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Size is of a ledger that has been in use for long. Everything else follows: as many jobs that have ended as are queued, a claim that is over and a
// session for each of them, and a hundred live claims.
type Size struct {
	Queued   int // jobs
	Accounts int // each with a lane of its own for the one set of labels
	// Free accounts have room; the lanes of all others are parked at their limit. At least 1.
	Free int
}

// Labels is the label that every job of Fill asks for; LabelKey is its key.
const (
	Labels   = "linux-4cpu"
	LabelKey = `["linux-4cpu"]`
)

// fill are statements with $1 jobs, $2 accounts, $3 those that have room. Ids of jobs begin with 1.
var fill = []string{
	`INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at)
	 SELECT n, 'org-' || n, 'Organization', 100000 + n, now(), now() FROM generate_series(1, $2::bigint) n`,
	`INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs)
	 SELECT n, platform, CASE WHEN n <= $3::bigint THEN 1000000000 ELSE 0 END, 1000000000, 1000000000 FROM generate_series(1, $2::bigint) n, (VALUES ('linux'), ('macos')) p (platform)`,
	`INSERT INTO label_sets VALUES ('["linux-4cpu"]', '{linux-4cpu}')`,
	`INSERT INTO label_sets SELECT '["other-' || n || '"]', ARRAY['other-' || n] FROM generate_series(1, 20) n`,
	`INSERT INTO job_lanes (label_key, account_id, parked, version, head_at)
	 SELECT '["other-' || n || '"]', a, 'empty', 1, now() FROM generate_series(1, 20) n, generate_series(1, $2::bigint) a`,
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at, received_at)
	 SELECT n, 1 + n % $2::bigint, 'org-' || (1 + n % $2::bigint) || '/app-' || n % 7, 1 + n % ($2::bigint * 7), n / 4, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'queued',
	   now() - interval '1 day' + n * interval '10 ms', now() - interval '1 day' + n * interval '10 ms', now() - interval '1 day' + n * interval '10 ms'
	 FROM generate_series(1, $1::bigint) n`,
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, runner_name, queued_at, started_at, completed_at, updated_at)
	 SELECT $1::bigint + n, 1 + n % $2::bigint, 'org-' || (1 + n % $2::bigint) || '/app-' || n % 7, 1 + n % ($2::bigint * 7), n / 4, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'completed', 'success', 'r-' || n,
	   now() - interval '20 days' + n * interval '1 s', now() - interval '20 days' + n * interval '1 s', now() - interval '19 days' + n * interval '1 s', now() - interval '19 days' + n * interval '1 s'
	 FROM generate_series(1, $1::bigint) n`,
	`INSERT INTO job_tombstones SELECT id, conclusion, completed_at FROM workflow_jobs WHERE completed_at IS NOT NULL`,
	`INSERT INTO webhook_deliveries SELECT 'd-' || n, 'workflow_job', now() - interval '3 days' + n * interval '100 ms' FROM generate_series(1, $1::bigint) n`,
	`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, stopped_at, ended_at, proof)
	 SELECT 'u-' || n, 'runners', 'p-' || n, 'linux', 'spent', 2, 1 + n % $2::bigint, 'linux', 4000, 16384, '["linux-4cpu"]', $1::bigint + n, 'r-' || n, now() - interval '1 day', now() - interval '1 day', now() - interval '1 day', 'x'
	 FROM generate_series(1, $1::bigint / 10) n`,
	`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, label_key, job_id, runner_name, claimed_at, minted_at)
	 SELECT 'live-' || n, 'runners', 'live-' || n, 'linux', 'minted', 1, 1, 'linux', 4000, 16384, '["linux-4cpu"]', 3000000000 + n, 'live-' || n, now(), now() FROM generate_series(1, 100) n`,
	`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, repository_id, generation, runner_id, state, created_at, gone_at)
	 SELECT 'r-' || n, 'u-' || n, 1 + n % $2::bigint, 'org-' || (1 + n % $2::bigint), 0, 1, n, 'gone', now() - interval '1 day', now() - interval '1 day' FROM generate_series(1, $1::bigint) n`,
	`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, runner_id, state, created_at)
	 SELECT 'live-' || n, 'live-' || n, 1, 'org-1', 1, 9000000 + n, 'alive', now() FROM generate_series(1, 100) n`,
	`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id, executed_job_id, repository, started_at, job_started_at, job_ended_at, ended_at, exit_code)
	 SELECT 'u-' || n, 'runners', 'p-' || n, 'linux', 1 + n % $2::bigint, 'linux', 4000, 16384, 'r-' || n, $1::bigint + n, $1::bigint + n, 'org-' || (1 + n % $2::bigint) || '/app-' || n % 7,
	   now() - interval '60 days' + n * interval '1 s', now() - interval '60 days' + n * interval '1 s', now() - interval '59 days' + n * interval '1 s', now() - interval '59 days' + n * interval '1 s', 0
	 FROM generate_series(1, $1::bigint) n`,
	`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id, started_at)
	 SELECT 'live-' || n, 'runners', 'live-' || n, 'linux', 1, 'linux', 4000, 16384, 'live-' || n, 3000000000 + n, now() FROM generate_series(1, 100) n`,
	`INSERT INTO job_lanes (label_key, account_id, parked, version, head_at, running)
	 SELECT '["linux-4cpu"]', n, CASE WHEN n <= $3::bigint THEN '' ELSE 'limit' END, 1, now() - interval '1 day', 0 FROM generate_series(1, $2::bigint) n`,
	`INSERT INTO repositories (name, repository_id, account_id, seen_at, swept_at)
	 SELECT 'org-' || a || '/app-' || r, 1 + (a + r * $2::bigint), a, now(), now() - r * interval '1 h' FROM generate_series(1, $2::bigint) a, generate_series(0, 6) r`,
	`INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at, settled_at)
	 SELECT 'd-' || n, n, 'workflow_job', now() - interval '1 day', now() - interval '1 day', now() FROM generate_series(1, $1::bigint / 10) n`,
	`INSERT INTO audit_events (at, actor, action, account_id, subject, before, after)
	 SELECT now(), 'ada', 'set_limits', 1 + n % $2::bigint, 'org-' || (1 + n % $2::bigint), '{"jobs": 1}', '{"jobs": 2}' FROM generate_series(1, $1::bigint / 10) n`,
	`INSERT INTO ended_installations SELECT 500000 + n, now() FROM generate_series(1, $2::bigint) n`,
	`INSERT INTO removed_repositories SELECT a, 'org-' || a || '/old', now() FROM generate_series(1, $2::bigint) a`,
	`INSERT INTO pod_sightings SELECT 'live-' || n, 'Running', now() FROM generate_series(1, 100) n`,
	`INSERT INTO runner_adoptions (runner_name, runner_id, pod_uid, account_id, job_id, scope, created_at, next_at)
	 SELECT 'a-' || n, n, 'a-' || n, 1, n, 'org-1', now(), now() + n * interval '1 s' FROM generate_series(1, 50) n`,
}

// Fill brings a migrated, empty ledger to that size, and has the planner know it: seconds for 100,000 jobs.
func Fill(t testing.TB, url string, size Size) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.Background()) }()
	for _, sql := range fill {
		// Each statement names all three, so that one list of arguments fits all.
		_, err := conn.Exec(t.Context(), "WITH size AS (SELECT $1::bigint, $2::bigint, $3::bigint) "+sql, size.Queued, size.Accounts, size.Free)
		require.NoError(t, err, sql)
	}
	_, err := conn.Exec(t.Context(), "VACUUM ANALYZE")
	require.NoError(t, err)
}
