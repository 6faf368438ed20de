package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// retained opens a ledger with one account and one set of labels.
func retained(t *testing.T) (*Store, string) {
	t.Helper()
	url := postgrestest.NewDatabase(t, Migrate)
	store, err := Open(t.Context(), url, 4)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	ledgertest.Exec(t, url, `INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at)
		VALUES (1, 'acme', 'Organization', 101, now(), now())`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets VALUES ('["linux"]', '{linux}')`)
	return store, url
}

const insertJob = `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
		label_key, state, conclusion, queued_at, completed_at, updated_at)
	SELECT $1, 1, 'acme/app', 1, 1, '', '', '', '', '["linux"]', $2, '', now() - $3::interval,
		CASE WHEN $2 IN ('completed', 'cancelled', 'stale') THEN now() - $3::interval END, now()`

func prune(t *testing.T, s *Store) {
	t.Helper()
	r, err := retention.New(retention.Options{Store: s, Batch: 3})
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context()))
}

func queuedEvent(id int64) dispatch.JobEvent {
	return dispatch.JobEvent{
		Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, JobID: id,
		Repository: "acme/app", RunID: 1, Labels: []string{"linux"},
	}
}

func delivery() dispatch.Delivery {
	return dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()}
}

// Only what has ended, long ago, and is not in use is removed.
func TestPrune_TakesWhatIsOverAndNothingElse(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	for id, job := range map[int64][2]string{
		1: {"completed", "31 days"}, 2: {"completed", "29 days"}, 3: {"queued", "500 days"}, 4: {"executing", "500 days"},
		5: {"cancelled", "31 days"}, 6: {"stale", "31 days"}, 7: {"completed", "31 days"}, 8: {"waiting", "500 days"},
	} {
		ledgertest.Exec(t, url, insertJob, id, job[0], job[1])
	}
	// A live claim says that the ended job 7 runs: whatever that means, its row is still read.
	ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, job_id, claimed_at)
		VALUES ('live', 'n', 'live', 'p', 'executing', 1, 1, 7, now()), ('over', 'n', 'over', 'p', 'spent', 1, 1, 1, now())`)
	ledgertest.Exec(t, url, `INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at, gone_at)
		SELECT name, pod, 1, 'acme', 1, state, now() - interval '50 days', at FROM (VALUES
			('gone-old', 'nobody', 'gone', now() - interval '8 days'), ('gone-new', 'nobody', 'gone', now() - interval '6 days'),
			('gone-here', 'over', 'gone', now() - interval '8 days'), ('alive', 'nobody', 'alive', NULL),
			('intended', 'nobody', 'intended', NULL)) AS v (name, pod, state, at)`)
	ledgertest.Exec(t, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
			runner_name, started_at, ended_at) SELECT pod, 'n', pod, 'p', 1, 'linux', 1, 1, pod, now() - interval '500 days', at
		FROM (VALUES ('s-old', now() - interval '401 days'), ('s-new', now() - interval '399 days'), ('s-open', NULL)) AS v (pod, at)`)
	ledgertest.Exec(t, url, `INSERT INTO webhook_deliveries VALUES ('d-old', 'x', now() - interval '8 days'), ('d-new', 'x', now() - interval '6 days')`)
	ledgertest.Exec(t, url, `INSERT INTO job_tombstones VALUES (100, '', now() - interval '91 days'), (101, '', now() - interval '89 days')`)
	ledgertest.Exec(t, url, `INSERT INTO runner_adoptions VALUES ('a-old', 1, 'x', 1, 1, 'acme', now() - interval '8 days', now(), 9),
		('a-new', 1, 'x', 1, 1, 'acme', now() - interval '6 days', now(), 9)`)
	ledgertest.Exec(t, url, `INSERT INTO repositories (name, account_id, seen_at, swept_at, repository_id) VALUES
		('acme/old', 1, now() - interval '31 days', now(), 0), ('acme/new', 1, now() - interval '29 days', now(), 0),
		('acme/waits', 1, now() - interval '31 days', now(), 700)`)
	ledgertest.Exec(t, url, "UPDATE workflow_jobs SET repository_id = 700 WHERE id = 3")
	ledgertest.Exec(t, url, `INSERT INTO ended_installations VALUES (1, now() - interval '91 days'), (2, now() - interval '89 days')`)
	ledgertest.Exec(t, url, `INSERT INTO audit_events (at, actor, action, subject) VALUES (now() - interval '401 days', 'a', 'old', 'x'),
		(now() - interval '399 days', 'a', 'new', 'x')`)
	ledgertest.Exec(t, url, `INSERT INTO pool_samples SELECT 'n', name, now() - age, span, 1, 0, 0, 0, 0, 0, 0, 0, '{}' FROM (VALUES
		('p-old', interval '15 days 1 minute', 15), ('p-new', interval '14 days 23 hours', 15), ('p-minute', interval '16 days', 1)) AS v (name, age, span)`)
	// Of an account that was purged; GitHub has removed its runners itself.
	ledgertest.Exec(t, url, `INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at)
		VALUES ('purged-old', 'nobody', 99, 'x', 1, 'alive', now() - interval '8 days'),
			('purged-new', 'nobody', 99, 'x', 1, 'alive', now() - interval '6 days'),
			('purged-here', 'over', 99, 'x', 1, 'alive', now() - interval '8 days')`)
	prune(t, store)
	for query, want := range map[string]string{
		"SELECT id::text AS x FROM workflow_jobs":           "2 3 4 7 8",
		"SELECT runner_name AS x FROM runner_registrations": "alive gone-here gone-new intended purged-here purged-new",
		"SELECT pod_uid AS x FROM runner_sessions":          "s-new s-open",
		"SELECT guid AS x FROM webhook_deliveries":          "d-new",
		"SELECT name AS x FROM repositories":                "acme/new acme/waits",
		"SELECT id::text AS x FROM ended_installations":     "2",
		"SELECT action AS x FROM audit_events":              "new",
		"SELECT pool AS x FROM pool_samples":                "p-minute p-new",
		"SELECT job_id::text AS x FROM job_tombstones":      "1 101 5 6",
		"SELECT runner_name AS x FROM runner_adoptions":     "a-new",
		"SELECT pod_uid AS x FROM runner_claims":            "live over",
	} {
		var got string
		require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT coalesce(string_agg(x, ' ' ORDER BY x), '') FROM ("+query+") q").Scan(&got))
		require.Equal(t, want, got, query)
	}
}

// The row of an ended job goes, whether or not it had a tombstone, and no late message revives it.
func TestPrune_CLAIM4_NothingRevivesAJobWhoseRowWent(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, insertJob, int64(1), "completed", "31 days")
	prune(t, store)
	state, err := store.JobState(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, fleet.JobAbsent, state, "its row went")
	_, err = store.RecordJob(t.Context(), delivery(), queuedEvent(1))
	require.NoError(t, err)
	state, err = store.JobState(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, fleet.JobAbsent, state)
}

// An unused set of labels is removed, and comes back with the next job: also at a replica that remembers it.
func TestPrune_LabelSetsAndLanesComeBack(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	_, err := store.RecordJob(t.Context(), delivery(), queuedEvent(1))
	require.NoError(t, err)
	ledgertest.Exec(t, url, "UPDATE job_lanes SET head_at = now() - interval '30 days'")
	prune(t, store)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"), "a lane with a job stays")

	ledgertest.Exec(t, url, "UPDATE workflow_jobs SET state = 'completed', completed_at = now() - interval '31 days'")
	ledgertest.Exec(t, url, "UPDATE job_lanes SET parked = 'empty', running = 1")
	prune(t, store)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"), "a lane that is charged stays")
	ledgertest.Exec(t, url, "UPDATE job_lanes SET running = 0")
	prune(t, store)
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"))
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM label_sets"))

	_, err = store.RecordJob(t.Context(), delivery(), queuedEvent(2))
	require.NoError(t, err)
	state, err := store.JobState(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, fleet.JobQueued, state)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes WHERE parked = ''"))
}

// TEN-2: a set of labels that no pool serves is removed within an hour of its last job, though no batch has ever read it
// and the jobs that asked for it are kept for a month. One in which a job still waits, or runs, stays.
func TestPrune_TEN2_WhatNoPoolServesGoes(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	event := func(id int64, kind fleet.JobEvent) {
		t.Helper()
		ev := queuedEvent(id)
		ev.Kind, ev.Labels, ev.RunnerName = kind, []string{"run-7"}, "elsewhere"
		_, err := store.RecordJob(t.Context(), delivery(), ev)
		require.NoError(t, err)
	}
	lanes := func(ago time.Duration) int64 {
		t.Helper()
		for _, rule := range retention.Default().Rules(time.Now().Add(ago)) {
			_, err := store.Prune(t.Context(), rule, 100)
			require.NoError(t, err)
		}
		sets, err := store.LabelSetsFrom(t.Context(), "", 100)
		require.NoError(t, err)
		require.Len(t, sets, int(ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes")), "a set is there for its lanes")
		return int64(len(sets))
	}
	event(1, fleet.JobEventQueued)
	event(2, fleet.JobEventQueued)
	event(1, fleet.JobEventStarted)
	event(1, fleet.JobEventCompleted)
	require.Equal(t, int64(1), lanes(time.Hour), "a job waits")
	event(2, fleet.JobEventStarted)
	require.Equal(t, int64(1), lanes(time.Hour), "a job runs")
	event(2, fleet.JobEventCompleted)
	require.Equal(t, int64(1), lanes(0))
	require.Zero(t, lanes(45*time.Minute))
	require.Equal(t, int64(2), ledgertest.Int(t, url, "SELECT count(*) FROM workflow_jobs"), "the jobs are kept")
	event(3, fleet.JobEventQueued)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes WHERE parked = ''"), "it comes back")
}

// TEN-2: a batch that takes the last job of a lane does not see that it is empty, and no further batch comes where its pool is gone by then. Such
// a lane goes, too, once its job is over; not one that a job is queued or held in.
func TestPrune_TEN2_LanesThatNoBatchFoundEmptyGo(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	require.NoError(t, store.SetLimits(t.Context(), 1, fleet.Linux, fleet.DefaultLimits(fleet.Linux)))
	_, batch := queueJobs(t, store, 1)
	result, err := store.ClaimBatch(t.Context(), batch)
	require.NoError(t, err)
	require.Len(t, result.Claims, 1)
	claim := result.Claims[0]
	pass, err := retention.New(retention.Options{Store: store, Batch: 3, Now: func() time.Time { return time.Now().Add(45 * time.Minute) }})
	require.NoError(t, err)
	lanes := func(want string) {
		t.Helper()
		require.NoError(t, pass.Run(t.Context()))
		require.Equal(t, want, ledgertest.Text(t, url, `SELECT coalesce(string_agg(label_key || parked, ' ' ORDER BY label_key), '') FROM job_lanes`))
	}
	lanes(claim.LabelKey)
	for id, label := range map[int64]string{1001: "held", 1002: "queued"} {
		ev := queuedEvent(id)
		ev.Labels = []string{label}
		_, err := store.RecordJob(t.Context(), delivery(), ev)
		require.NoError(t, err)
	}
	ledgertest.Exec(t, url, "UPDATE workflow_jobs SET held = 'repository_removed' WHERE id = 1001")
	for _, reason := range []string{"limit", "suspended", "held", ""} { // an empty one, however it is parked
		key := dispatch.LabelKey([]string{"reason-" + reason})
		ledgertest.Exec(t, url, "INSERT INTO label_sets VALUES ($1, '{}')", key)
		ledgertest.Exec(t, url, "INSERT INTO job_lanes (label_key, account_id, parked, head_at) VALUES ($1, 1, $2, now())", key, reason)
	}
	done := queuedEvent(claim.JobID)
	done.Kind, done.Conclusion, done.RunnerName, done.Account = fleet.JobEventCompleted, "success", claim.RunnerName, claim.Account
	_, err = store.RecordJob(t.Context(), delivery(), done)
	require.NoError(t, err)
	lanes(`["held"] ["queued"]`)
}

// TEN-2: a job that is queued while its lane is found empty keeps the lane: whether it has a job is decided with the lane locked.
func TestPrune_TEN2_ALaneThatIsFedMeanwhileStays(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, head_at) VALUES ('["linux"]', 1, now() - interval '1 day')`)
	commit := ledgertest.Hold(t, url, // as RecordJob does
		`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
			VALUES (1, 1, 'acme/app', 1, 1, '', '', '', '', '["linux"]', 'queued', now(), now())`,
		`UPDATE job_lanes SET parked = '', version = version + 1`)
	done := make(chan error, 1)
	go func() {
		_, err := store.Prune(t.Context(), retention.Rule{Kind: retention.Lanes, Before: time.Now()}, 10)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
	}, waitForLock, lockTick)
	commit()
	require.NoError(t, await.Receive(t, done, "the pass that waited returns"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes WHERE parked = ''"))
}

// Jobs that are queued while sets of labels go all find their way in.
func TestPrune_LabelSetsRaceWithJobs(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ctx, cancel := context.WithCancel(t.Context())
	pruned := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := store.Prune(t.Context(), retention.Rule{Kind: retention.LabelSets}, 10); err != nil {
				pruned <- err
				return
			}
		}
		pruned <- nil
	}()
	for id := range int64(25) {
		_, err := store.RecordJob(t.Context(), delivery(), queuedEvent(id+1))
		require.NoError(t, err)
		ledgertest.Exec(t, url, "DELETE FROM workflow_jobs")
		ledgertest.Exec(t, url, "DELETE FROM job_lanes")
	}
	cancel()
	require.NoError(t, await.Receive(t, pruned, "pruning ends"))
}

// However large the ledger, a pass reads what it removes and little more: no table is scanned but label_sets, which every
// replica reads as a whole anyway.
func TestPrune_ScansNoTable(t *testing.T) {
	t.Parallel()
	url := postgrestest.NewDatabase(t, Migrate)
	store, err := Open(t.Context(), url, 1) // one connection, which flushes its statistics
	require.NoError(t, err)
	t.Cleanup(store.Close)
	const rows = 20_000
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := store.pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec(`INSERT INTO accounts (id, login, kind, created_at, updated_at) SELECT i, 'a' || i, 'User', now(), now() FROM generate_series(1, 2000) i`)
	exec(`INSERT INTO label_sets SELECT 'k' || i, '{}' FROM generate_series(1, 300) i`)
	age := `now() - make_interval(mins => (i * 37) % (60 * 24 * 500))`
	exec(`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
		label_key, state, queued_at, completed_at, updated_at)
		SELECT i, i % 2000 + 1, 'r', 1, 1, '', '', '', '', 'k' || (i % 200 + 1), 'completed', `+age+`, `+age+`, now() FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO job_tombstones SELECT i, '', `+age+` FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO webhook_deliveries SELECT i, 'x', `+age+` FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, claimed_at)
		SELECT 'p' || i, 'n', 'p' || i, 'p', 'spent', 1, now() FROM generate_series(1, 5000) i`)
	exec(`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at, gone_at)
		SELECT i, 'p' || i, 1, 'a', 1, 'gone', now(), `+age+` FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb,
		runner_name, started_at, ended_at) SELECT 'p' || i, 'n', 'p' || i, 'p', 1, 'linux', 1, 1, '', now(), `+age+` FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO runner_adoptions SELECT i, 1, 'x', 1, 1, 'a', `+age+`, now(), 0 FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO job_lanes (label_key, account_id, parked, head_at)
		SELECT 'k' || i, a, 'empty', now() - make_interval(days => (i * 7 + a) % 20) FROM generate_series(1, 200) i, generate_series(1, 60) a`)
	exec(`INSERT INTO repositories (name, account_id, seen_at, swept_at, repository_id) SELECT 'r' || i, 1, `+age+`, now(), i FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO ended_installations SELECT i, `+age+` FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO audit_events (at, actor, action, subject) SELECT `+age+`, '', '', '' FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO runner_tails SELECT i, 'n', 'p', 'p', `+age+`, 1, '', '', false FROM generate_series(1, $1::int) i`, rows)
	exec(`INSERT INTO pool_samples SELECT 'n', i, `+age+`, 15, 1, 0, 0, 0, 0, 0, 0, 0, '{}' FROM generate_series(1, $1::int) i`, rows)
	exec("ANALYZE")
	scans := func() (sum map[string]int64) {
		t.Helper()
		exec("SELECT pg_stat_force_next_flush()")
		exec("SELECT pg_stat_clear_snapshot()")
		rows, err := store.pool.Query(t.Context(), "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'public'")
		require.NoError(t, err)
		sum = map[string]int64{}
		for rows.Next() {
			var name string
			var n int64
			require.NoError(t, rows.Scan(&name, &n))
			sum[name] = n
		}
		require.NoError(t, rows.Err())
		return sum
	}
	before := scans()
	removed := map[retention.Kind]int64{}
	for _, rule := range retention.Default().Rules(time.Now()) {
		n, err := store.Prune(t.Context(), rule, 1000)
		require.NoError(t, err)
		removed[rule.Kind] = n
	}
	after := scans()
	for _, kind := range []retention.Kind{retention.Deliveries, retention.Jobs, retention.Tombstones, retention.Sessions,
		retention.Registrations, retention.Adoptions, retention.Lanes, retention.Repositories, retention.Installations,
		retention.Audit, retention.Tails, retention.Samples} {
		require.Equal(t, int64(1000), removed[kind], kind)
	}
	require.Positive(t, removed[retention.LabelSets])
	for table := range after {
		if table != "label_sets" {
			require.Equal(t, before[table], after[table], "%s was scanned", table)
		}
	}
}
