package console_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// relay counts the statements that pass to a PostgreSQL.
type relay struct {
	url        string
	statements atomic.Int64
}

func newRelay(t *testing.T, database string) *relay {
	t.Helper()
	target, err := url.Parse(database)
	require.NoError(t, err)
	network, address := "tcp", target.Host
	if socket := target.Query().Get("host"); socket != "" {
		network, address = "unix", socket+"/.s.PGSQL.5432"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	target.Host, target.RawQuery = listener.Addr().String(), "sslmode=disable"
	r := &relay{url: target.String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, server); client.Close() }()
			go func() { r.count(client, server); server.Close() }()
		}
	}()
	return r
}

// count passes on what the client sends, and counts what of it has a statement run: Execute and simple queries. The first message has no kind.
func (r *relay) count(client io.Reader, server io.Writer) {
	in := bufio.NewReader(client)
	for first := true; ; first = false {
		head := 5
		if first {
			head = 4
		}
		start, err := in.Peek(head)
		if err != nil {
			return
		}
		if !first && (start[0] == 'E' || start[0] == 'Q') {
			r.statements.Add(1)
		}
		if _, err := io.CopyN(server, in, int64(binary.BigEndian.Uint32(start[head-4:]))+int64(head)-4); err != nil {
			return
		}
	}
}

const (
	manyRunners = 500
	manyBusy    = 400
)

// manyFleet has a pool of many runners.
type manyFleet struct{ oneFleet }

func uidOf(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func (manyFleet) PodsOfPool(ref dispatch.PoolRef) []admin.RunnerPod {
	if ref.Name != "" && ref != linux4.Ref() {
		return nil
	}
	pods := make([]admin.RunnerPod, manyRunners)
	for i := range pods {
		pods[i] = admin.RunnerPod{
			Pod:  dispatch.Pod{Namespace: "runners", Name: fmt.Sprintf("linux-4-%d", i+1), UID: uidOf(i + 1), Pool: linux4.Ref()},
			Node: fmt.Sprintf("node-%d", i%25), CreatedAt: time.Now().Add(-3 * time.Minute), Ready: true,
		}
	}
	return pods
}

// crowd is a ledger with the given number of jobs of 20 accounts: some are running, and of the others every second one is queued.
func crowd(t *testing.T, jobs int) (database string) {
	t.Helper()
	database = postgrestest.NewDatabase(t, ledger.Migrate)
	exec := func(sql string, args ...any) { t.Helper(); ledgertest.Exec(t, database, sql, args...) }
	exec(`INSERT INTO accounts SELECT n, 'org-' || n, 'Organization', n, false, now(), now() FROM generate_series(1, 20) n`)
	exec(`INSERT INTO label_sets VALUES ('["linux-4"]', '{linux-4}')`)
	exec(`INSERT INTO job_lanes (label_key, account_id, head_at) SELECT '["linux-4"]', n, now() - interval '1 hour' FROM generate_series(1, 20) n`)
	exec(`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state,
			runner_name, queued_at, started_at, completed_at, updated_at)
		SELECT 100000 + n, 1 + n / 2 % 20, 'org-' || 1 + n / 2 % 20 || '/app', n, 1, 'build', 'ci', 'main', 'abc', '["linux-4"]', s.state,
			CASE WHEN s.state = 'queued' THEN '' ELSE 'r' || n END, now() - interval '1 hour' + n * interval '1 ms',
			CASE WHEN s.state = 'queued' THEN NULL ELSE now() - interval '10 min' END, CASE WHEN s.state = 'completed' THEN now() END, now()
		FROM generate_series(1, $1::int) n,
			LATERAL (SELECT CASE WHEN n <= $2::int THEN 'executing' WHEN n % 2 = 0 THEN 'queued' ELSE 'completed' END AS state) s`, jobs, manyBusy)
	exec(`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, label_key,
			job_id, runner_name, claimed_at, minted_at, acknowledged_at, executing_at)
		SELECT '00000000-0000-4000-8000-' || lpad(n::text, 12, '0'), 'runners', 'linux-4-' || n, 'linux-4', 'executing', 1, 1 + n / 2 % 20, 'linux', 4000, 8192,
			'["linux-4"]', 100000 + n, 'r' || n, now(), now(), now(), now() FROM generate_series(1, $1::int) n`, manyBusy)
	exec(`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id,
			executed_job_id, started_at, job_started_at, job_ended_at, ended_at)
		SELECT 'session-' || id, 'runners', 'linux-4-' || id, 'linux-4', account_id, 'linux', 4000, 8192, runner_name, id, id, started_at, started_at,
			completed_at, completed_at FROM workflow_jobs WHERE state <> 'queued'`)
	exec(`INSERT INTO pool_samples SELECT v.namespace, v.pool, date_bin('1 minute', now(), 'epoch') - n * interval '1 minute', 1, 1, n % 40, 300 + n % 100, n % 50, n % 9, 500,
			n % 40, 300 + n % 100, '{3,2,1,0,0,1}' FROM generate_series(0, 1499) n, (VALUES ('runners', 'linux-4'), ('', '')) AS v (namespace, pool)`)
	exec(`INSERT INTO pool_samples SELECT v.namespace, v.pool, date_bin('15 minutes', now(), 'epoch') - interval '25 hours' - n * interval '15 minutes', 15, 15, n % 600, 4500 + n % 1500,
			n % 750, n % 135, 7500, n % 40, 300 + n % 100, '{45,30,15,0,0,15}' FROM generate_series(1, 1244) n, (VALUES ('runners', 'linux-4'), ('', '')) AS v (namespace, pool)`)
	exec(`VACUUM ANALYZE`)
	return database
}

// cost is what one page took.
type cost struct{ statements, rows, bytes int64 }

// costOf opens a page once, on connections of its own: PostgreSQL adds up what they have read when they end.
func costOf(t *testing.T, database, path string) cost {
	t.Helper()
	read := func() int64 {
		// The reads of the test's own connection, for the checks of foreign keys, would otherwise be added up at most once a second.
		ledgertest.Exec(t, database, `SELECT pg_stat_force_next_flush()`)
		return ledgertest.Int(t, database, `SELECT ((SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)
			+ (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes))::bigint`)
	}
	alone := func() {
		require.Eventually(t, func() bool {
			return ledgertest.Int(t, database, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`) == 0
		}, time.Minute, 10*time.Millisecond)
	}
	alone()
	before := read()
	way := newRelay(t, database)
	store, err := ledger.Open(t.Context(), way.url, 4)
	require.NoError(t, err)
	api, err := admin.New(admin.Options{Store: store, Access: &cluster{}, Fleet: manyFleet{}})
	require.NoError(t, err)
	console, err := console.New(console.Options{API: api.Handler(), Admission: api.Admission(), Secret: []byte("a secret that every replica has")})
	require.NoError(t, err)
	serve := func(r *http.Request) *http.Response {
		r.Host = "127.0.0.1:8082"
		w := httptest.NewRecorder()
		console.Handler().ServeHTTP(w, r)
		return w.Result()
	}
	login := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ui/login", strings.NewReader("token="+adas))
	login.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	cookies := serve(login).Cookies()
	require.Len(t, cookies, 1)
	page := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, path, http.NoBody)
	page.AddCookie(cookies[0])
	begun := way.statements.Load()
	resp := serve(page)
	text := body(t, resp)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, text)
	c := cost{statements: way.statements.Load() - begun, bytes: int64(len(text))}
	store.Close()
	alone()
	c.rows = read() - before
	return c
}

// The cost of a page does not grow with the number of jobs: at 10,000 its statements and its size are what they are at 1,000, and it reads
// no more of the ledger, except for counts, searches and sums, which are named here and read each row once. Nothing is timed.
func TestPages_CostTheSameAtTenThousandJobs(t *testing.T) {
	few, many := crowd(t, 1_000), crowd(t, 10_000)
	const waiting, ended = 4_800, 4_800 // of the many
	for path, more := range map[string]int64{
		"/ui/":                                 waiting + 1000, // how many are queued, of each account, and how the newest 1,000 have completed
		"/ui/jobs":                             0,
		"/ui/jobs?ended=true":                  0,
		"/ui/jobs?account=org-3&limit=10":      0,
		"/ui/jobs?name=no-such-job":            10_000, // two reads of each of the newest 5,000 at most
		"/ui/jobs?conclusion=failure":          10_000,
		"/ui/jobs/100401":                      waiting / 20, // how many of its account wait
		"/ui/jobs/101000":                      waiting / 20,
		"/ui/pools":                            0,
		"/ui/pools/runners/linux-4":            0,
		"/ui/nodes":                            0,
		"/ui/accounts":                         waiting,
		"/ui/accounts/org-3":                   waiting / 20,
		"/ui/usage":                            2 * (ended + manyBusy), // the months' sessions, for months and for days
		"/ui/?window=14d":                      waiting + 1000,
		"/ui/pools/runners/linux-4?window=14d": 0,
		"/ui/pools/runners/linux-4?stage=busy": 0,
	} {
		small, large := costOf(t, few, path), costOf(t, many, path)
		t.Logf("%s: %d statements, %d rows, %d KiB; with a tenth of the jobs %d, %d, %d", path,
			large.statements, large.rows, large.bytes>>10, small.statements, small.rows, small.bytes>>10)
		require.Equal(t, small.statements, large.statements, path)
		require.LessOrEqual(t, large.statements, int64(12), path)
		require.LessOrEqual(t, large.rows, small.rows+more+200, path)
		require.InDelta(t, small.bytes, large.bytes, 512, path)
		require.LessOrEqual(t, large.bytes, int64(80<<10), path) // of a pool half is its runners, half its history
	}
}
