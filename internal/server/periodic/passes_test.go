package periodic_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// envChild makes the test binary a replica of its own: the database to work on.
const envChild = "BULLPEN_TEST_PASSES_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(envChild); url != "" {
		child(url)
		return
	}
	postgrestest.Main(m)
}

const (
	patience = 30 * time.Second
	interval = 2 * time.Millisecond
)

// passLocks are the locks of passes in this database. The view shows those of the whole server, on which other tests run.
const passLocks = `pg_locks WHERE locktype = 'advisory' AND classid = x'62756c6c'::int
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

type replica struct {
	*periodic.Runner
	pool    *pgxpool.Pool
	metrics *prometheus.Registry
	stop    func() // ends Run and waits for it
}

// start runs a replica, with the test's short bounds unless pace says otherwise.
func start(t *testing.T, url string, opts periodic.Options) *replica {
	t.Helper()
	r := prepare(t, url, opts)
	r.Quicken()
	r.run(t)
	return r
}

func prepare(t *testing.T, url string, opts periodic.Options) *replica {
	t.Helper()
	pool, err := ledger.OpenPool(t.Context(), url, 8)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := &replica{pool: pool, metrics: prometheus.NewRegistry()}
	opts.Pool, opts.Metrics = pool, r.metrics
	r.Runner, err = periodic.New(opts)
	require.NoError(t, err)
	return r
}

func (r *replica) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, await.Result(ended, "the passes stop"))
	})
	t.Cleanup(r.stop)
}

func database(t *testing.T) string { return postgrestest.NewDatabase(t, ledger.Migrate) }

// signal is a pass that reports every run.
func signal(name string, every time.Duration) (periodic.Pass, chan struct{}) {
	ran := make(chan struct{}, 1000)
	return periodic.Pass{Name: name, Every: every, Run: func(context.Context) error { ran <- struct{}{}; return nil }}, ran
}

func wait[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "it never happened: "+what)
		panic("unreachable")
	}
}

// One at a time in the whole installation, on either of two replicas, and again and again.
func TestRun_OneAtATimeOnAnyReplica(t *testing.T) {
	t.Parallel()
	url := database(t)
	var running, runs, overlaps atomic.Int32
	pass := periodic.Pass{Name: "count", Every: time.Second, Run: func(context.Context) error {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		runs.Add(1)
		defer running.Add(-1)
		// Longer than the period, as the database sees it.
		ledgertest.Exec(t, url, "SELECT pg_sleep(1.3)")
		return nil
	}}
	a := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	b := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	require.Eventually(t, func() bool { return runs.Load() >= 4 }, patience, interval)
	a.stop()
	b.stop()
	require.Zero(t, overlaps.Load())
	require.LessOrEqual(t, ledgertest.Int(t, url, "SELECT runs FROM passes"), int64(runs.Load()),
		"each run was taken once")
}

// Incident (a cron leader elected on a node with an empty crontab halted every scheduled job): here no replica's list is
// the installation's. The replica without passes is there first and leads River; the one with passes runs them all the
// same.
func TestRun_ALeaderWithAnEmptyListHaltsNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	empty := start(t, url, periodic.Options{Check: func(context.Context, string) error { return nil }})
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM river.river_leader") == 1
	}, patience, 20*time.Millisecond)
	mine, ran := signal("mine", time.Second)
	start(t, url, periodic.Options{Passes: []periodic.Pass{mine}})
	other, otherRan := signal("of_another_version", time.Second)
	start(t, url, periodic.Options{Passes: []periodic.Pass{other}})
	for range 3 {
		wait(t, ran, "the pass of a replica that does not lead")
		wait(t, otherRan, "the pass of another version")
	}
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM river.river_leader"))
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job WHERE state = 'discarded'"),
		"nobody takes what it does not know")
	empty.stop()
}

// A replica that is killed in the middle of a pass, and led River, costs one takeover.
func TestRun_AKilledReplicaIsSucceededWithinTheBound(t *testing.T) {
	t.Parallel()
	url := database(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 1)) // the child is inside the pass
	require.NoError(t, err)

	pass, ran := signal("stuck", time.Hour)
	r := prepare(t, url, periodic.Options{Passes: []periodic.Pass{pass}}) // with the bounds of production
	r.run(t)
	require.NoError(t, cmd.Process.Kill())
	killed := time.Now()
	wait(t, ran, "the pass of the replica that was killed")
	require.Less(t, time.Since(killed), 17*time.Second, "the bound that defaultPace states")
}

// child is a replica that announces that it is inside the pass, and stays there.
func child(url string) {
	pool, err := ledger.OpenPool(context.Background(), url, 8)
	if err != nil {
		panic(err)
	}
	r, err := periodic.New(periodic.Options{Pool: pool, Passes: []periodic.Pass{{Name: "stuck", Every: time.Hour,
		Run: func(ctx context.Context) error {
			_, _ = os.Stdout.WriteString("x")
			<-ctx.Done()
			return ctx.Err()
		}}}})
	if err != nil {
		panic(err)
	}
	_ = r.Run(context.Background())
}

// A machine that vanishes says nothing; its lock lasts for the lease.
func TestRun_AHolderThatIsSilentLosesTheLockAfterTheLease(t *testing.T) {
	t.Parallel()
	url := database(t)
	pass, ran := signal("held", time.Second)
	vanished, err := pgxpool.New(t.Context(), url) // never closed: its connection is taken
	require.NoError(t, err)
	begun := time.Now()
	require.NoError(t, periodic.HoldInSilence(t.Context(), vanished, "held", 1500*time.Millisecond))
	start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, ran, "the pass whose lock was held by a machine that vanished")
	require.GreaterOrEqual(t, time.Since(begun), time.Second, "it did not wait for the lock")
}

// A holder whose session is gone must end: another may be running already.
func TestRun_AHolderThatLosesTheLockEnds(t *testing.T) {
	t.Parallel()
	url := database(t)
	inside, ended := make(chan struct{}, 10), make(chan error, 10)
	var first atomic.Bool
	pass := periodic.Pass{Name: "long", Every: time.Hour, Timeout: time.Minute, Run: func(ctx context.Context) error {
		if !first.CompareAndSwap(false, true) {
			ended <- nil
			return nil
		}
		inside <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	r := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, inside, "the pass began")
	ledgertest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM "+passLocks)
	// The holder checks its lock five times a second, so the next run may end before it does.
	ends := []error{wait(t, ended, "one run ended"), wait(t, ended, "the other run ended")}
	require.ElementsMatch(t, []error{context.Canceled, nil}, ends, "the context of the holder ends, and the pass runs again")
	require.Eventually(t, func() bool {
		return count(t, r.metrics, "bullpen_pass_runs_total", "interrupted") == 1
	}, patience, interval)
}

// A clean stop ends the pass, gives leadership up at once and leaves no goroutine; the next replica
// continues.
func TestRun_AStopLeavesNothingBehind(t *testing.T) {
	url := database(t)
	inside := make(chan struct{}, 10)
	blocking := periodic.Pass{Name: "blocking", Every: time.Minute, Run: func(ctx context.Context) error {
		inside <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	r := start(t, url, periodic.Options{Passes: []periodic.Pass{blocking}})
	wait(t, inside, "the pass began")
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM river.river_leader") == 1
	}, patience, 20*time.Millisecond)
	r.stop()
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM river.river_leader"), "leadership was given up")
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job WHERE state = 'running'"))
	require.Eventually(t, func() bool { // with its connection, whose end PostgreSQL notices a moment later
		return ledgertest.Int(t, url, "SELECT count(*) FROM "+passLocks) == 0
	}, patience, interval, "no lock is left")
	stacks := make([]byte, 1<<20)
	require.Eventually(t, func() bool { // the runtime takes a moment to bury a goroutine that has returned
		text := string(stacks[:runtime.Stack(stacks, true)])
		return !strings.Contains(text, "riverqueue") && !strings.Contains(text, "periodic.(*Runner)")
	}, patience, interval, "%s", stacks)

	again := start(t, url, periodic.Options{Passes: []periodic.Pass{blocking}})
	wait(t, inside, "the interrupted pass was made good")
	again.stop()
}

func TestRun_FailuresAndPanicsAreCountedAndTriedAgain(t *testing.T) {
	t.Parallel()
	url := database(t)
	var runs atomic.Int32
	done := make(chan struct{})
	pass := periodic.Pass{Name: "clumsy", Every: time.Second, Run: func(context.Context) error {
		switch runs.Add(1) {
		case 1:
			return errors.New("no luck")
		case 2:
			panic("oops")
		case 3:
			close(done)
		}
		return nil
	}}
	r := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, done, "the third run")
	require.Eventually(t, func() bool {
		return count(t, r.metrics, "bullpen_pass_runs_total", "ok") >= 1
	}, patience, interval)
	require.InDelta(t, 2, count(t, r.metrics, "bullpen_pass_runs_total", "failed"), 0)
}

func TestRun_APassThatOverrunsItsTimeoutIsEnded(t *testing.T) {
	t.Parallel()
	url := database(t)
	ended := make(chan error, 10)
	pass := periodic.Pass{Name: "slow", Every: time.Hour, Timeout: 50 * time.Millisecond, Run: func(ctx context.Context) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	r := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	require.ErrorIs(t, wait(t, ended, "the time-out"), context.DeadlineExceeded)
	require.Eventually(t, func() bool {
		return count(t, r.metrics, "bullpen_pass_runs_total", "failed") == 1
	}, patience, interval)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT finished FROM passes"), "it is not repeated before its time")
}

// The gauge is the installation's: a replica that runs nothing reports the others' success, and a pass that never
// succeeds grows old.
func TestRun_EveryReplicaReportsTheLastSuccess(t *testing.T) {
	t.Parallel()
	url := database(t)
	good, ran := signal("good", time.Hour)
	bad := periodic.Pass{Name: "bad", Every: time.Hour, Run: func(context.Context) error { return errors.New("never") }}
	start(t, url, periodic.Options{Passes: []periodic.Pass{good, bad}})
	wait(t, ran, "the pass")
	b := start(t, url, periodic.Options{Passes: []periodic.Pass{good, bad}})
	require.Eventually(t, func() bool {
		return time.Since(lastSuccess(t, b.metrics, "good")) < time.Minute && !lastSuccess(t, b.metrics, "good").IsZero()
	}, patience, interval)
	ledgertest.Exec(t, url, "UPDATE passes SET created_at = now() - interval '2 hours' WHERE name = 'bad'")
	require.Eventually(t, func() bool { return time.Since(lastSuccess(t, b.metrics, "bad")) > time.Hour }, patience, interval)
}

// A start that lies ahead was taken by another clock, and holds up nothing.
func TestRun_AClockThatWentBackHaltsNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	ledgertest.Exec(t, url, `INSERT INTO passes (name, runs, finished, started_at, finished_at)
		VALUES ('ahead', 7, 7, now() + interval '5 hours', now() + interval '5 hours')`)
	pass, ran := signal("ahead", time.Hour)
	start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, ran, "the pass")
}

// The row of a run that was fetched by a replica that died before it began holds up nothing.
func TestRun_ARowLeftBehindHoldsUpNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	pass, ran := signal("left", time.Second)
	dead := prepare(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	dead.Quicken()
	now := time.Now()
	for slot := range 2 { // whichever the first look falls into
		require.NoError(t, dead.Queue(t.Context(), "left", 0, now.Add(time.Duration(slot)*2*time.Second)))
	}
	ledgertest.Exec(t, url, "UPDATE river.river_job SET state = 'running', attempted_at = now()")
	start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, ran, "the run")
	require.Greater(t, time.Since(now), time.Second, "the rows that are left behind were not in the way, and prove nothing")
}

func TestNew_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	pool, err := ledger.OpenPool(t.Context(), database(t), 8)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	run := func(context.Context) error { return nil }
	for want, list := range map[string][]periodic.Pass{
		"use snake_case":   {{Name: "No Good", Every: time.Minute, Run: run}},
		"two passes":       {{Name: "aa", Every: time.Minute, Run: run}, {Name: "aa", Every: time.Minute, Run: run}},
		"does nothing":     {{Name: "aa", Every: time.Minute}},
		"once a second":    {{Name: "aa", Every: time.Millisecond, Run: run}},
		"must be positive": {{Name: "aa", Every: time.Minute, Timeout: -1, Run: run}},
	} {
		_, err := periodic.New(periodic.Options{Pool: pool, Passes: list})
		require.ErrorContains(t, err, want)
	}
	_, err = periodic.New(periodic.Options{})
	require.ErrorContains(t, err, "pool")
	small, err := ledger.OpenPool(t.Context(), database(t), 2)
	require.NoError(t, err)
	t.Cleanup(small.Close)
	_, err = periodic.New(periodic.Options{Pool: small})
	require.ErrorContains(t, err, "at least")
}

// count adds up the series of a counter that have the label value.
func count(t *testing.T, reg *prometheus.Registry, name, value string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == name && label.GetValue() == value {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func lastSuccess(t *testing.T, reg *prometheus.Registry, pass string) time.Time {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "bullpen_pass_last_success_timestamp_seconds" && metric.GetLabel()[0].GetValue() == pass {
				return time.UnixMilli(int64(metric.GetGauge().GetValue() * 1000))
			}
		}
	}
	return time.Time{}
}

// A log record that carries an argument of a job would be seen here.
func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Rows of jobs that are over go.
func TestRun_OldRowsAreRemoved(t *testing.T) {
	t.Parallel()
	url := database(t)
	pass, ran := signal("cleaned", time.Hour)
	a := start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	wait(t, ran, "the pass")
	a.stop()
	ledgertest.Exec(t, url, "UPDATE river.river_job SET state = 'completed', finalized_at = now() - interval '11 minutes'")
	start(t, url, periodic.Options{Passes: []periodic.Pass{pass}})
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job") == 0
	}, patience, 20*time.Millisecond)
}
