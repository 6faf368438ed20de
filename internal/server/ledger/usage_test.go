package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// Every second of every session is counted once, in its month; every session and job once, in the month in which it began.
// Both are compared with a model over random sessions, in one page and in many, and by account.
func TestUsage_NothingIsCountedTwice(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(10, 13) n`)
	first := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	now := time.Date(2026, 10, 20, 12, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same at every run
	type key struct {
		account     int64
		month, pool string
	}
	want, counted := map[key]adminapi.MonthUsage{}, map[string]bool{}
	for n := range 100 {
		account, pool := 10+random.Int64N(4), fmt.Sprintf("pool-%d", random.IntN(2))
		started := first.Add(time.Duration(random.Int64N(int64(80 * 24 * time.Hour)))).Truncate(time.Second)
		until := started.Add(time.Duration(random.Int64N(int64(40 * 24 * time.Hour)))).Truncate(time.Second)
		var ended, jobStarted, jobEnded *time.Time
		var job *int64
		jobFrom, jobTo := time.Time{}, time.Time{}
		open, claimed := !until.Before(now), true
		if open {
			until, claimed = now, random.IntN(4) > 0
		} else {
			ended = &until
		}
		if random.IntN(3) > 0 && until.Sub(started) > time.Minute {
			id := int64(n / 2) // some are given to two runners
			jobFrom, jobTo = started.Add(10*time.Second), until.Add(-10*time.Second)
			job, jobStarted = &id, &jobFrom
			if open {
				jobTo = until
			} else {
				jobEnded = &jobTo
			}
		}
		uid := fmt.Sprintf("uid-%d", n)
		ledgertest.Exec(t, url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name,
			executed_job_id, started_at, job_started_at, job_ended_at, ended_at) VALUES ($1, 'r', $1, $2, $3, 'linux', 2000, 512, $1, $4, $5, $6, $7, $8)`,
			uid, pool, account, job, started, jobStarted, jobEnded, ended)
		if open && claimed {
			ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, claimed_at)
				VALUES ($1, 'r', $1, $2, 'minted', 1, $3, now())`, uid, pool, account)
		}
		if open && !claimed {
			continue // its end is unknown: it is counted when recovery has closed it
		}
		for month := first; month.Before(now); month = month.AddDate(0, 1, 0) {
			past := month.AddDate(0, 1, 0)
			seconds := overlap(started, until, month, past)
			if seconds == 0 {
				continue
			}
			k := key{account, month.Format(adminapi.MonthFormat), pool}
			u := want[k]
			u.RunnerSeconds += seconds
			u.CPUSeconds += 2 * seconds
			u.MemoryGiBSeconds += seconds / 2
			if !started.Before(month) {
				u.Sessions++
			}
			if job != nil {
				u.JobSeconds += overlap(jobFrom, jobTo, month, past)
				once := fmt.Sprint(k, *job)
				if !jobFrom.Before(month) && jobFrom.Before(past) && !counted[once] {
					u.Jobs, counted[once] = u.Jobs+1, true
				}
			}
			want[k] = u
		}
	}
	check := func(got []adminapi.MonthUsage, wanted func(key) bool) {
		t.Helper()
		seen := map[key]bool{}
		for _, u := range got {
			k := key{u.AccountID, u.Month, u.Pool}
			require.False(t, seen[k], "%v twice", k)
			seen[k] = true
			w := want[k]
			require.Equal(t, [2]int64{w.Sessions, w.Jobs}, [2]int64{u.Sessions, u.Jobs}, k)
			require.InDelta(t, w.RunnerSeconds, u.RunnerSeconds, .01, k)
			require.InDelta(t, w.JobSeconds, u.JobSeconds, .01, k)
			require.InDelta(t, w.CPUSeconds, u.CPUSeconds, .01, k)
			require.InDelta(t, w.MemoryGiBSeconds, u.MemoryGiBSeconds, .01, k)
			require.Equal(t, fmt.Sprintf("a%d", u.AccountID), u.Account)
		}
		for k := range want {
			require.Equal(t, wanted(k), seen[k], k)
		}
	}
	q := admin.UsageQuery{Since: first, Before: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Now: now}
	all, next, err := store.Usage(t.Context(), q)
	require.NoError(t, err)
	require.Zero(t, next)
	check(all, func(key) bool { return true })

	var paged []adminapi.MonthUsage
	pages, by := 0, q
	for {
		page, next, err := store.usage(t.Context(), by, 7) // an account has six rows
		require.NoError(t, err)
		paged, pages = append(paged, page...), pages+1
		if next == 0 {
			break
		}
		by.After = next
	}
	require.Equal(t, all, paged)
	require.Equal(t, 4, pages)
	_, _, err = store.usage(t.Context(), q, 3)
	var invalid *admin.InvalidError
	require.ErrorAs(t, err, &invalid)

	by = q
	by.Account, by.Since, by.Before = "a11", first.AddDate(0, 1, 0), first.AddDate(0, 2, 0)
	one, _, err := store.Usage(t.Context(), by)
	require.NoError(t, err)
	check(one, func(k key) bool { return k.account == 11 && k.month == "2026-09" })
}

func overlap(from, to, first, past time.Time) float64 {
	if from.Before(first) {
		from = first
	}
	if to.After(past) {
		to = past
	}
	return max(0, to.Sub(from).Seconds())
}
