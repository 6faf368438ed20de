package dispatch_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// benchAccounts is how many accounts the backlog is spread over.
const benchAccounts = 1000

// BenchmarkSignals reads the signals of a backlog of one job an account, and of a hundred. The cost should depend on the number of lanes
// and on the jobs that could be handed out, not on the number of jobs.
func BenchmarkSignals(b *testing.B) {
	for _, room := range []int{0, 40} {
		for _, jobs := range []int{benchAccounts, 100 * benchAccounts} {
			b.Run(fmt.Sprintf("room=%d/jobs=%d", room, jobs), func(b *testing.B) {
				store := backlogOf(b, jobs, room)
				c := newClock()
				pools := dispatchtest.NewCluster()
				pools.PutPool(linuxPool("linux"))
				d, err := dispatch.New(dispatch.Options{
					Store: store, Forge: newGitHub(), Cluster: pools, Now: c.now, Log: slog.New(slog.DiscardHandler),
				})
				require.NoError(b, err)
				for b.Loop() {
					c.pass(2 * time.Second)
					signals, err := d.Signals(b.Context())
					require.NoError(b, err)
					require.Len(b, signals.Pools, 1)
					require.Equal(b, benchAccounts*min(room, jobs/benchAccounts), signals.Pools[0].Queued)
				}
			})
		}
	}
}

// BenchmarkPeaks reads the last hour of a ledger with a given number of sessions, 10,000 of them in the last hour.
func BenchmarkPeaks(b *testing.B) {
	for _, sessions := range []int{10_000, 300_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			url := postgrestest.NewDatabase(b, postgres.Migrate)
			store, err := postgres.Open(b.Context(), url, 0)
			require.NoError(b, err)
			b.Cleanup(store.Close)
			now := time.Now()
			ledgertest.Exec(b, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu,
				memory_mb, runner_name, started_at, ended_at)
				SELECT n, 'runners', n, 'pool-' || n % 20, 1, 'linux', 1, 1, n, $2::timestamptz - age - interval '6 minutes', $2::timestamptz - age
				FROM generate_series(1, $1) n, LATERAL (SELECT n * interval '360 milliseconds' AS age) a`, sessions, now)
			ledgertest.Exec(b, url, `ANALYZE`)
			for b.Loop() {
				changes, err := store.SessionChanges(b.Context(), now.Add(-59*time.Minute), 60)
				require.NoError(b, err)
				require.Len(b, dispatch.Peaks(changes, 60), 20)
			}
		})
	}
}

func backlogOf(b *testing.B, jobs, room int) *postgres.Store {
	b.Helper()
	url := postgrestest.NewDatabase(b, postgres.Migrate)
	store, err := postgres.Open(b.Context(), url, 0)
	require.NoError(b, err)
	b.Cleanup(store.Close)
	ledgertest.Exec(b, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(1, $1) n`, benchAccounts)
	ledgertest.Exec(b, url, `INSERT INTO account_limits SELECT id, 'linux', 1 << 30, 1 << 30, $1 FROM accounts`, room)
	ledgertest.Exec(b, url, `INSERT INTO label_sets VALUES ('["linux"]', '{linux}')`)
	ledgertest.Exec(b, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch,
		head_sha, label_key, state, queued_at, updated_at)
		SELECT n, 1 + n % $1, 'a/a', 1, 1, 'build', 'ci', 'main', 'abc', '["linux"]', 'queued', now() + n * interval '1 second', now() FROM generate_series(0, $2 - 1) n`, benchAccounts, jobs)
	ledgertest.Exec(b, url, `INSERT INTO job_lanes (label_key, account_id, head_at)
		SELECT label_key, account_id, min(queued_at) FROM workflow_jobs GROUP BY 1, 2`)
	ledgertest.Exec(b, url, `ANALYZE`)
	return store
}
