package ledger

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// What listing the jobs that wait or run costs, and what reading one of them costs, does not grow with those that have
// ended. Tuples are counted, not time.
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
		jobs, err := pageOfJobs(t.Context(), q, admin.JobQuery{Before: math.MaxInt64, Most: 100}, nil)
		require.Len(t, jobs, 5)
		return err
	}), int64(10))
	require.LessOrEqual(t, read(func(q *sqlcgen.Queries) error {
		older, err := q.OlderInLane(t.Context(), sqlcgen.OlderInLaneParams{LabelKey: `["own"]`, AccountID: 10, QueuedAt: time.Now(), ID: 3, Most: 100})
		require.EqualValues(t, 3, older)
		return err
	}), int64(10))
	require.LessOrEqual(t, read(func(q *sqlcgen.Queries) error {
		jobs, err := pageOfJobs(t.Context(), q, admin.JobQuery{Before: math.MaxInt64, Most: 100, Ended: true}, nil)
		require.Len(t, jobs, 100)
		return err
	}), int64(250), "a page of those that have ended is read from the end")
}

// Pages of jobs, one after the other, are all that was asked for, each once and newest first, for any filter by
// account, repository and states.
func TestJobs_PagesAreAllThatWasAskedFor(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at)
		VALUES (2, 'Other', 'Organization', 102, now(), now()), (3, 'renamed', 'Organization', 103, now(), now()), (4, 'OTHER', 'User', NULL, now(), now())`)
	states := []string{"waiting", "queued", "claimed", "minted", "executing", "completed", "cancelled", "stale"}
	type job struct {
		id, account       int64
		repository, state string
	}
	var all []job
	// Account 3 was called "former" when its jobs ran, and no account is now; 4 has the login of 2, which 2 gave up.
	repositories := map[int64][]string{1: {"acme/app", "acme/lib"}, 2: {"Other/app"}, 3: {"former/app"}, 4: {"OTHER/app", "other/lib"}}
	for n := range int64(120) {
		account := 1 + n%4
		j := job{1 + n*7919%1009, account, repositories[account][n/4%int64(len(repositories[account]))], states[n*31%8]}
		all = append(all, j)
		ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at, completed_at)
			VALUES ($1, $2, $3, 1, 1, '', '', '', '', '["linux"]', $4::text, now(), now(), CASE WHEN $4::text IN ('completed', 'cancelled', 'stale') THEN now() END)`, j.id, j.account, j.repository, j.state)
	}
	rapid.Check(t, func(r *rapid.T) {
		q := admin.JobQuery{
			Account:    rapid.SampledFrom([]string{"", "", "acme", "ACME", "@2", "@3"}).Draw(r, "account"),
			Repository: rapid.SampledFrom([]string{"", "", "acme/app", "Acme/LIB", "other/app", "former/app", "nobody/app", "no slash"}).Draw(r, "repository"),
			States:     rapid.SliceOfN(rapid.SampledFrom(states), 0, 3).Draw(r, "states"),
			Ended:      rapid.Bool().Draw(r, "ended"), Most: rapid.IntRange(1, 9).Draw(r, "most"),
		}
		account := map[string]int64{"acme": 1, "ACME": 1, "@2": 2, "@3": 3}[q.Account]
		for _, state := range q.States { // as the API has it
			q.Ended = q.Ended || fleet.JobState(state).Terminal()
		}
		var expected, got []int64
		for _, j := range all {
			if (account == 0 || j.account == account) && (q.Repository == "" || strings.EqualFold(j.repository, q.Repository)) &&
				(q.Ended || !fleet.JobState(j.state).Terminal()) && (len(q.States) == 0 || slices.Contains(q.States, j.state)) {
				expected = append(expected, j.id)
			}
		}
		slices.Sort(expected)
		slices.Reverse(expected)
		for {
			page, err := store.Jobs(t.Context(), q)
			require.NoError(r, err)
			for _, j := range page {
				got = append(got, j.ID)
			}
			if len(page) < q.Most {
				break
			}
			q.Before = page[q.Most-1].ID
		}
		require.Equal(r, expected, got)
	})
}

// Searches, page after page, give all that match and nothing else, each once and newest first; a page reads a bounded number of jobs whatever there are.
func TestJobs_SearchesFindAllThatMatches(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at) VALUES (2, 'app', 'Organization', 102, now(), now())`)
	type job struct {
		id, account                         int64
		repository, name, state, conclusion string
	}
	kinds := []struct{ state, conclusion string }{
		{"queued", ""}, {"executing", ""}, {"completed", "success"}, {"completed", "failure"}, {"completed", "skipped"}, {"cancelled", "cancelled"}, {"waiting", ""},
	}
	var all []job
	for n := range int64(105) {
		kind := kinds[n%7]
		repository := []string{"acme/app", "acme/library", "app/web"}[n/7%3]
		j := job{1 + n*7919%1009, 1 + n/7%3/2, repository, []string{"build", "Test (linux, 1)", "50%_done"}[n/21%3], kind.state, kind.conclusion}
		all = append(all, j)
		ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, queued_at, updated_at, completed_at)
			VALUES ($1, $2, $3, 1, 1, $4, '', '', '', '["linux"]', $5::text, $6, now(), now(), CASE WHEN $5::text IN ('completed', 'cancelled', 'stale') THEN now() END)`,
			j.id, j.account, j.repository, j.name, j.state, j.conclusion)
	}
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	rapid.Check(t, func(r *rapid.T) {
		q := admin.JobQuery{
			Account:     rapid.SampledFrom([]string{"", "", "acme", "@2"}).Draw(r, "account"),
			Repository:  rapid.SampledFrom([]string{"", "APP", "lib", "acme/app", "none"}).Draw(r, "repository"),
			Name:        rapid.SampledFrom([]string{"", "uil", "test (", "%_", "none"}).Draw(r, "name"),
			Conclusions: rapid.SliceOfN(rapid.SampledFrom([]string{"success", "failure", "cancelled"}), 0, 2).Draw(r, "conclusions"),
			States:      rapid.SliceOfN(rapid.SampledFrom([]string{"queued", "completed"}), 0, 2).Draw(r, "states"),
			Ended:       rapid.Bool().Draw(r, "ended"), Most: rapid.IntRange(1, 9).Draw(r, "most"),
		}
		account := map[string]int64{"acme": 1, "@2": 2}[q.Account]
		q.Ended = q.Ended || len(q.Conclusions) > 0 || slices.Contains(q.States, "completed") // as the API has it
		var expected, got []int64
		for _, j := range all {
			repository := has(j.repository, q.Repository)
			if strings.Contains(q.Repository, "/") {
				repository = strings.EqualFold(j.repository, q.Repository)
			}
			if (account == 0 || j.account == account) && repository && has(j.name, q.Name) && (len(q.Conclusions) == 0 || slices.Contains(q.Conclusions, j.conclusion)) &&
				(q.Ended || !fleet.JobState(j.state).Terminal()) && (len(q.States) == 0 || slices.Contains(q.States, j.state)) {
				expected = append(expected, j.id)
			}
		}
		slices.Sort(expected)
		slices.Reverse(expected)
		for range len(all) + 1 {
			page, next, err := store.SearchJobs(t.Context(), q)
			require.NoError(r, err)
			for _, j := range page {
				got = append(got, j.ID)
			}
			if next == 0 {
				break
			}
			if q.Before != 0 {
				require.Less(r, next, q.Before, "the next page is an older one")
			}
			q.Before = next
		}
		require.Equal(r, expected, got)
	})
}

// The jobs that were queued when their account was deleted are shown as stale, and found as such.
func TestJobs_OfADeletedAccountAreStale(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	_, err := store.RecordJob(t.Context(), delivery(), queuedEvent(5))
	require.NoError(t, err)
	ledgertest.Exec(t, url, `UPDATE accounts SET installation_id = NULL`)
	require.NoError(t, store.DeleteAccount(t.Context(), admin.Change{Account: "acme", Actor: "ada", At: time.Now()}, false))
	for _, account := range []string{"", "@1"} {
		jobs, _, err := store.SearchJobs(t.Context(), admin.JobQuery{Account: account, Conclusions: []string{"stale"}, Ended: true, Most: 10})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		require.EqualValues(t, 5, jobs[0].ID)
	}
	counts, err := store.Conclusions(t.Context(), time.Now().Add(-time.Hour), 10)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"stale": 1}, counts)
}

func TestStoredConclusions(t *testing.T) {
	require.Equal(t, []string{"stale", "failure", "account_deleted"}, storedConclusions([]string{"stale", "failure"}))
	require.Equal(t, []string{"failure"}, storedConclusions([]string{"failure"}))
	require.NotNil(t, storedConclusions(nil), "nil would be NULL")
	require.Equal(t, "stale", shownConclusion("account_deleted"))
	require.Equal(t, "failure", shownConclusion("failure"))
}

// A page of a search reads so many jobs and no more, and says where the next one begins when it has found nothing among them.
func TestJobs_ASearchIsBounded(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, queued_at, updated_at, completed_at)
		SELECT n, 1, 'acme/app', 1, 1, CASE n WHEN 7 THEN 'rare' ELSE 'build' END, 'ci', 'main', 'abc', '["linux"]', 'completed', 'success', now(), now(), now() FROM generate_series(1, $1::int) n`, 2*searched+500)
	ledgertest.Exec(t, url, `ANALYZE`)
	q := admin.JobQuery{Name: "rare", Ended: true, Most: 10}
	for _, next := range []int64{searched + 501, 501} {
		jobs, rest, err := store.SearchJobs(t.Context(), q)
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Equal(t, next, rest)
		q.Before = rest
	}
	jobs, rest, err := store.SearchJobs(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Zero(t, rest)
	require.EqualValues(t, 7, jobs[0].ID)
}

// A job that has completed still says which pool and pod ran it, in lists as well as by itself.
func TestJobs_KeepPoolAndPodWhenTheyComplete(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, runner_name, queued_at, started_at, updated_at, completed_at)
		VALUES (7, 1, 'acme/app', 1, 1, 'build', 'ci', 'main', 'abc', '["linux"]', 'completed', 'failure', 'bp-x', now(), now(), now(), now()),
			(8, 1, 'acme/app', 1, 1, 'build', 'ci', 'main', 'abc', '["linux"]', 'completed', 'success', 'elsewhere', now(), now(), now(), now())`)
	ledgertest.Exec(t, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id, executed_job_id, started_at, claimed_at, exit_code)
		VALUES ('u', 'runners', 'linux-a', 'linux', 1, 'linux', 1000, 1024, 'bp-x', 7, 7, now(), now(), 137),
			('v', 'runners', 'linux-b', 'linux', 1, 'linux', 1000, 1024, 'bp-y', 8, 7, now(), now(), 0)`)
	listed, err := store.Jobs(t.Context(), admin.JobQuery{Ended: true, Most: 10})
	require.NoError(t, err)
	require.Len(t, listed, 2)
	alone, err := store.Job(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, alone, listed[1])
	require.Equal(t, []string{"runners", "linux-a", "linux", "linux-a"}, []string{alone.PodNamespace, alone.Pod, alone.Pool, alone.Runner()})
	require.EqualValues(t, 137, *alone.ExitCode)
	require.NotNil(t, alone.RegisteredAt)
	require.Empty(t, listed[0].Pod)
	require.Equal(t, "elsewhere", listed[0].Runner(), "a runner that is no pod of a pool")
}

// Conclusions are counted of the newest jobs that have completed since then, and of no more than were asked for.
func TestJobs_ConclusionsAreCounted(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, queued_at, updated_at, completed_at)
		SELECT n, 1, 'acme/app', 1, 1, 'build', 'ci', 'main', 'abc', '["linux"]', CASE WHEN n > 90 THEN 'queued' ELSE 'completed' END, CASE WHEN n > 90 THEN '' WHEN n % 3 = 0 THEN 'failure' ELSE 'success' END,
			now(), now(), CASE WHEN n <= 90 THEN now() - n * interval '1 minute' END FROM generate_series(1, 100) n`)
	counts, err := store.Conclusions(t.Context(), time.Now().Add(-30*time.Minute-30*time.Second), 1000)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"failure": 10, "success": 20}, counts)
	counts, err = store.Conclusions(t.Context(), time.Now().Add(-24*time.Hour), 6)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"failure": 2, "success": 4}, counts)
}
