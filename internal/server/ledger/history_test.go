package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// began has a session of a pool begin a job that was queued for so long.
func began(t *testing.T, url string, job int64, pool string, started time.Time, queued time.Duration, change string) {
	t.Helper()
	ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
		label_key, state, queued_at, started_at, updated_at) VALUES ($1, 1, 'acme/app', 1, 1, '', '', '', '', '["linux"]', 'executing', $2, $3, now())`,
		job, started.Add(-queued), started)
	ledgertest.Exec(t, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name,
		executed_job_id, started_at, job_started_at) VALUES ($1, 'r', $1, $2, 1, 'linux', 1, 1, $1, $3, $4, $4)`, fmt.Sprint("s-", job), pool, job, started)
	if change != "" {
		ledgertest.Exec(t, url, "UPDATE runner_sessions SET "+change+" WHERE executed_job_id = $1", job)
	}
}

// Jobs that started within the span are counted exactly once, by minute and by bucket of queue time, whether or not their runners have ended.
func TestStartedJobs_CountsEachStartInItsMinuteAndBucket(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	before := since.Add(10 * time.Minute)
	type key struct {
		pool   string
		at     time.Time
		bucket int
	}
	want := map[key]int64{}
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same at every run
	for job := range int64(120) {
		started := since.Add(time.Duration(random.IntN(14*60)-2*60) * time.Second)
		queued := time.Duration(random.Int64N(int64(time.Hour) >> random.IntN(20)))
		change := ""
		if random.IntN(2) == 0 {
			change = "ended_at = job_started_at + interval '40 minutes', job_ended_at = job_started_at"
		}
		pool := fmt.Sprint("p", random.IntN(2))
		began(t, url, job, pool, started, queued, change)
		if !started.Before(since) && started.Before(before) {
			want[key{pool, started.Truncate(time.Minute), history.Bucket(queued.Truncate(time.Microsecond).Seconds())}]++
		}
	}
	// The pod had its configuration 3 s after the second in which GitHub says that the job began: so long it was queued.
	began(t, url, 1000, "late", since, time.Second, "acknowledged_at = job_started_at + interval '3 seconds'")
	want[key{"late", since, history.Bucket(4)}]++
	began(t, url, 1001, "clocks", since, -time.Second, "") // by two clocks it began before it was queued
	want[key{"clocks", since, 0}]++
	started, err := store.StartedJobs(t.Context(), since, before)
	require.NoError(t, err)
	got := map[key]int64{}
	for _, s := range started {
		require.Equal(t, "r", s.Pool.Namespace)
		got[key{s.Pool.Name, s.At, s.Bucket}] += s.Jobs
	}
	require.Equal(t, want, got)
}

func samplesNow(t *testing.T, store *Store, pool string) []history.Sample {
	t.Helper()
	samples, err := store.Samples(t.Context(), history.Pool{Namespace: "r", Name: pool}, time.Time{}, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	return samples
}

// A minute is sampled once, and its queue times are those of the last count; a repeated pass writes no row again.
func TestRecordSamples_IsIdempotent(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ctx, at := t.Context(), time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	pool := history.Pool{Namespace: "r", Name: "p"}
	gauges := func(busy int64) history.Sample {
		return history.Sample{Pool: pool, At: at, Span: history.FineSpan, Minutes: 1, Sum: history.Gauges{Busy: busy, Capacity: 9}, PeakBusy: busy}
	}
	times := func(jobs int64) history.Sample {
		return history.Sample{Pool: pool, At: at, Span: history.FineSpan, QueueTimes: history.Histogram{}.With(3, jobs)}
	}
	row := func() string {
		return ledgertest.Text(t, url, "SELECT coalesce(string_agg(xmin::text, ' '), '') FROM pool_samples")
	}
	for _, step := range []struct {
		write history.Sample
		busy  int64
		jobs  int64
		same  bool
	}{
		{times(1), 0, 1, false}, {gauges(2), 2, 1, false}, {gauges(2), 2, 1, true}, {gauges(5), 2, 1, true}, {times(1), 2, 1, true},
		{times(4), 2, 4, false}, {times(4), 2, 4, true},
	} {
		before := row()
		require.NoError(t, store.RecordSamples(ctx, []history.Sample{step.write}))
		require.Equal(t, step.same, before == row(), "%+v", step)
		is := samplesNow(t, store, "p")
		require.Len(t, is, 1)
		require.Equal(t, []int64{step.busy, step.jobs}, []int64{is[0].Sum.Busy, is[0].QueueTimes.Jobs()}, "%+v", step)
	}
	is := samplesNow(t, store, "p")[0]
	require.Equal(t, history.Sample{
		Pool: pool, At: at, Span: history.FineSpan, Minutes: 1, Sum: history.Gauges{Busy: 2, Capacity: 9}, PeakBusy: 2, QueueTimes: history.Histogram{0, 0, 0, 4},
	}, is)
}

// gaugesOf are the same whenever they are read.
type gaugesOf map[history.Pool]history.Gauges

func (g gaugesOf) Gauges(context.Context) (map[history.Pool]history.Gauges, error) { return g, nil }

// What was sampled shows the same after it was rolled up, the table is bounded, and passes that are interrupted and repeated change nothing of it.
func TestRollUpMinutes_KeepsTheSeriesAndBoundsTheTable(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ctx := t.Context()
	now := time.Date(2026, 11, 26, 12, 7, 30, 0, time.UTC)
	// 30 hours of minutes, with an interruption of an hour, and a quarter of an hour of which only one minute was sampled.
	ledgertest.Exec(t, url, `INSERT INTO pool_samples SELECT 'r', p, $1::timestamptz - n * interval '1 minute', 1, 1, n % 7, n % 5, 3, n % 2, 10, n % 7, n % 5,
			CASE WHEN n % 3 = 0 THEN '{}' ELSE ARRAY[n % 2, n % 3] END
		FROM generate_series(0, 30 * 60 - 1) n, (VALUES ('p'), ('q')) AS v (p) WHERE n NOT BETWEEN 1600 AND 1659 AND n NOT BETWEEN 1681 AND 1690`,
		now.Truncate(time.Minute))
	fortnight := history.Windows()[1]
	before := fortnight.Series(now, samplesNow(t, store, "p"))
	rolled := int64(0)
	for {
		n, err := store.RollUpMinutes(ctx, now.Add(-history.MinutesKept).Truncate(history.CoarseSpan))
		require.NoError(t, err)
		if n == 0 {
			break
		}
		require.LessOrEqual(t, n, 2*15, "a quarter of an hour of two pools")
		rolled += int64(n)
		require.Equal(t, before, fortnight.Series(now, samplesNow(t, store, "p")))
	}
	require.Positive(t, rolled)
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM pool_samples WHERE span = 1 AND at < $1", now.Add(-history.MinutesKept).Truncate(history.CoarseSpan)))
	require.LessOrEqual(t, ledgertest.Int(t, url, "SELECT count(*) FROM pool_samples WHERE span = 1 AND pool = 'p'"), int64(1500+15))

	recorder, err := history.New(history.Options{
		Store: store, Source: gaugesOf{{Namespace: "r", Name: "p"}: {Busy: 4, Capacity: 10}}, Now: func() time.Time { return now },
	})
	require.NoError(t, err)
	now = now.Add(time.Hour)
	require.NoError(t, recorder.Run(ctx))
	whole := ledgertest.Text(t, url, "SELECT md5(string_agg(s::text, ' ' ORDER BY s::text)) FROM pool_samples s")
	require.NoError(t, recorder.Run(ctx))
	require.Equal(t, whole, ledgertest.Text(t, url, "SELECT md5(string_agg(s::text, ' ' ORDER BY s::text)) FROM pool_samples s"))
	require.EqualValues(t, 1, ledgertest.Int(t, url, "SELECT count(*) FROM pool_samples WHERE namespace = '' AND pool = '' AND busy = 4"), "the fleet has a row of its own")
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM pool_samples WHERE span = 1 AND at < $1", now.Add(-history.MinutesKept).Truncate(history.CoarseSpan)))
}

// Days add up to what months say, each second is of the day in which it passed, and an account's are its own.
func TestUsageByDay_AddsUpToTheMonths(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	first := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // the same at every run
	want := map[string]float64{}
	for n := range 80 {
		started := first.Add(time.Duration(random.Int64N(int64(50 * 24 * time.Hour)))).Truncate(time.Second)
		until := started.Add(time.Duration(random.Int64N(int64(60 * time.Hour)))).Truncate(time.Second)
		switch n {
		case 0: // a whole day
			started, until = first.AddDate(0, 0, 3), first.AddDate(0, 0, 4)
		case 1: // over the end of the month
			started, until = first.AddDate(0, 0, 30).Add(23*time.Hour), first.AddDate(0, 0, 31).Add(time.Hour)
		}
		ended := &until
		if !until.Before(now) {
			until, ended = now, nil
		}
		uid := fmt.Sprintf("uid-%d", n)
		ledgertest.Exec(t, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name,
			executed_job_id, started_at, job_started_at, job_ended_at, ended_at) VALUES ($1, 'r', $1, 'p', $2, 'linux', 2000, 512, $1, $3, $4, $4, $5, $5)`,
			uid, 10+n%2, n, started, ended)
		if ended == nil {
			ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, claimed_at)
				VALUES ($1, 'r', $1, 'p', 'minted', 1, 1, now())`, uid)
		}
		for day := first; day.Before(now); day = day.AddDate(0, 0, 1) {
			want[day.Format(adminapi.DayFormat)] += overlap(started, until, day, day.AddDate(0, 0, 1))
		}
	}
	query := admin.UsageQuery{Since: first, Before: first.AddDate(0, 2, 0), Now: now}
	days, err := store.UsageByDay(t.Context(), query)
	require.NoError(t, err)
	var sum adminapi.DayUsage
	for i, day := range days {
		if i > 0 {
			require.Less(t, days[i-1].Day, day.Day)
		}
		require.InDelta(t, want[day.Day], day.RunnerSeconds, .01, day.Day)
		require.LessOrEqual(t, day.JobSeconds, day.RunnerSeconds+.01)
		delete(want, day.Day)
		sum.Sessions, sum.Jobs, sum.RunnerSeconds = sum.Sessions+day.Sessions, sum.Jobs+day.Jobs, sum.RunnerSeconds+day.RunnerSeconds
		sum.CPUSeconds, sum.MemoryGiBSeconds = sum.CPUSeconds+day.CPUSeconds, sum.MemoryGiBSeconds+day.MemoryGiBSeconds
	}
	for day, seconds := range want {
		require.Zero(t, seconds, "%s is left out", day)
	}
	months, _, err := store.Usage(t.Context(), query)
	require.NoError(t, err)
	var all adminapi.DayUsage
	for _, m := range months {
		all.Sessions, all.Jobs, all.RunnerSeconds = all.Sessions+m.Sessions, all.Jobs+m.Jobs, all.RunnerSeconds+m.RunnerSeconds
		all.CPUSeconds, all.MemoryGiBSeconds = all.CPUSeconds+m.CPUSeconds, all.MemoryGiBSeconds+m.MemoryGiBSeconds
	}
	require.Equal(t, []int64{80, 80, all.Sessions, all.Jobs}, []int64{all.Sessions, all.Jobs, sum.Sessions, sum.Jobs})
	require.InDelta(t, all.RunnerSeconds, sum.RunnerSeconds, .1)
	require.InDelta(t, all.CPUSeconds, sum.CPUSeconds, .1)
	require.InDelta(t, all.MemoryGiBSeconds, sum.MemoryGiBSeconds, .1)

	query.Account = "@11"
	ledgertest.Exec(t, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(10, 11) n`)
	own, err := store.UsageByDay(t.Context(), query)
	require.NoError(t, err)
	sessions := int64(0)
	for _, day := range own {
		sessions += day.Sessions
	}
	require.EqualValues(t, 40, sessions)
	query.Account = "nobody"
	_, err = store.UsageByDay(t.Context(), query)
	require.ErrorIs(t, err, admin.ErrNotFound)
}
