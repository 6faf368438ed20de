package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

func in(repository string) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) { ev.Repository = repository }
}

// capped sets the account's limits on Linux.
func (h *harness) capped(a dispatch.Account, jobs, perRepository int64) {
	h.t.Helper()
	require.NoError(h.t, h.store.SetLimits(h.t.Context(), a.ID, fleet.Linux,
		fleet.Limits{MilliCPU: 1 << 30, MemoryMB: 1 << 30, Jobs: jobs, JobsPerRepository: perRepository}))
}

// perRepository counts live claims.
func perRepository(claims map[string]dispatch.Claim) map[string]int {
	n := map[string]int{}
	for _, c := range claims {
		n[c.Repository]++
	}
	return n
}

// CLAIM-5: a repository's cap holds under any concurrency, however long its backlog, and it does not delay the jobs behind it. Each
// completed job lets the next one start, without a pass.
func TestCap_CLAIM5_HoldsUnderConcurrencyAndBlocksNobody(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 100, 3)
	for id := int64(1); id <= 60; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog")))
	}
	for id := int64(101); id <= 105; id++ {
		h.record(job(fleet.JobEventQueued, id, in(fmt.Sprintf("acme/small-%d", id))))
	}
	live, order := map[string]dispatch.Claim{}, []int64{}
	var mu sync.Mutex
	round := func() {
		var wg sync.WaitGroup
		for range 6 {
			b := h.batchOf(linuxPool("linux"), dispatch.LabelKey([]string{"linux"}), 3)
			wg.Go(func() {
				for more := true; more && len(b.Polls) > 0; {
					result, err := h.store.ClaimBatch(context.Background(), b)
					if err != nil {
						t.Errorf("claiming: %v", err)
						return
					}
					mu.Lock()
					for _, c := range result.Claims {
						live[c.PodUID] = c
						order = append(order, c.JobID)
					}
					mu.Unlock()
					more, b.Polls = result.More, b.Polls[len(result.Claims):]
				}
			})
		}
		await.Return(t, wg.Wait, "the concurrent calls return")
	}
	for rounds := 0; len(order) < 65; rounds++ {
		require.Less(t, rounds, 65, "jobs are left: %v", h.account("acme"))
		round()
		running := perRepository(live)
		require.LessOrEqual(t, running["acme/hog"], 3)
		if rounds == 0 {
			require.Equal(t, 3, running["acme/hog"])
			require.Len(t, live, 8, "the others are served at once")
			a := h.account("acme")
			require.EqualValues(t, 57, a.Blocked+a.Queued)
		}
		for uid, c := range live {
			h.finish(c)
			delete(live, uid)
			if rounds%3 != 0 {
				break // one at a time, or all together
			}
		}
	}
	require.Zero(t, h.account("acme").Blocked)
	hogs := slices.DeleteFunc(slices.Clone(order), func(id int64) bool { return id > 60 })
	sorted := slices.Sorted(slices.Values(hogs))
	for i, id := range hogs { // batches overlap, so neighbours may swap; no job is overtaken by a crowd
		require.InDelta(t, sorted[i], id, 6, "a repository's jobs keep their order: %v", hogs)
	}
}

// CLAIM-5, in any order of events: a claim never exceeds its repository's cap, and what is blocked always comes back.
func TestCap_CLAIM5_AnyOrderOfEvents(t *testing.T) {
	h := newHarness(t)
	checkOnLedger(t, func(rt *rapid.T) {
		ledgertest.Exec(t, h.url, `DELETE FROM runner_registrations; DELETE FROM runner_claims; DELETE FROM runner_sessions;
			DELETE FROM job_lanes; DELETE FROM workflow_jobs; DELETE FROM job_tombstones`)
		limit := rapid.Int64Range(0, 3).Draw(rt, "cap")
		h.capped(acme, 6, limit)
		live, next := []dispatch.Claim{}, int64(0)
		waiting := map[int64]string{}
		claim := func() {
			for _, c := range h.claims(linuxPool("linux"), rapid.IntRange(1, 4).Draw(rt, "polls")) {
				live = append(live, c)
				delete(waiting, c.JobID)
				running := int64(0)
				for _, other := range live {
					if other.Repository == c.Repository {
						running++
					}
				}
				if limit > 0 {
					require.LessOrEqual(rt, running, limit, c.Repository)
				}
			}
			require.LessOrEqual(rt, len(live), 6)
		}
		finish := func() {
			if len(live) > 0 {
				h.finish(live[0])
				live = live[1:]
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"queue": func(rt *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(rt, "jobs") {
					next++
					waiting[next] = fmt.Sprintf("acme/%d", rapid.IntRange(0, 2).Draw(rt, "repository"))
					h.record(job(fleet.JobEventQueued, next, in(waiting[next])))
				}
			},
			"claim":  func(*rapid.T) { claim() },
			"finish": func(*rapid.T) { finish() },
			"cancel": func(*rapid.T) {
				for id := int64(1); id <= next; id++ {
					if _, ok := waiting[id]; ok {
						h.record(job(fleet.JobEventCancelled, id))
						delete(waiting, id)
						return
					}
				}
			},
			"give back": func(*rapid.T) { // its mint was refused: CLAIM-8
				if len(live) == 0 {
					return
				}
				c := live[len(live)-1]
				ok, err := h.store.Unclaim(t.Context(), c.PodUID, c.Generation, c.LeaseUntil)
				require.NoError(rt, err)
				require.True(rt, ok)
				live, waiting[c.JobID] = live[:len(live)-1], c.Repository
			},
			"change the cap": func(rt *rapid.T) {
				limit = rapid.Int64Range(0, 3).Draw(rt, "cap")
				if limit > 0 { // lowering it below the running number stops nothing: wait for that, to keep the check above simple
					for len(live) > 0 {
						finish()
					}
				}
				_, err := h.store.ChangeLimits(t.Context(), change("acme"), map[string]adminapi.LimitsChange{"linux": {JobsPerRepository: &limit}})
				require.NoError(rt, err)
			},
		})
		for range 2 * int(next) { // in any state, everything ends without a pass
			claim()
			finish()
		}
		require.Empty(rt, waiting, "left behind")
	})
}

// A cap that blocked nothing costs the account's runners their place: they are registered at the job's repository,
// because a runner of the organization takes any job GitHub gives it.
func TestCap_RunnersAreRegisteredAtTheRepository(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pool := linuxPool("linux")
	pool.RunnerGroupID = 7
	h.cluster.PutPool(pool)
	scope := func() string {
		var found string
		for _, s := range []string{"acme", "acme/app"} {
			if ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE scope = $1`, s) > 0 {
				found = s
			}
		}
		return found
	}
	h.queue(1)
	h.served(d, h.pod("linux"))
	require.Equal(t, "acme", scope())
	require.EqualValues(t, 7, h.forge.Asked().RunnerGroupID)
	h.capped(acme, 10, 2)
	h.queue(2)
	h.served(d, h.pod("linux"))
	require.Equal(t, "acme/app", scope())
	require.Equal(t, fleet.Scope{Owner: "acme", Repo: "app"}, h.forge.Asked().Scope)
	require.EqualValues(t, 1, h.forge.Asked().RunnerGroupID, "a repository has no groups")
}

// CLAIM-9: a runner that is registered at a repository is given no job of another one when its own runs elsewhere.
func TestCap_CLAIM9_DisplacedRunnerKeepsToItsRepository(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 5)
	h.record(job(fleet.JobEventQueued, 1, in("acme/a")))
	h.record(job(fleet.JobEventQueued, 2, in("acme/a")))
	claims := h.claims(linuxPool("linux"), 2)
	require.Len(t, claims, 2)
	h.record(job(fleet.JobEventQueued, 3, in("acme/b")))
	h.record(job(fleet.JobEventQueued, 4, in("acme/a")))
	first, second := claims[0], claims[1]
	h.record(job(fleet.JobEventStarted, second.JobID, by(first.RunnerName), in("acme/a")))
	h.record(job(fleet.JobEventCompleted, first.JobID, in("acme/a"))) // cancelled before it ran anywhere
	got, err := h.store.Claim(t.Context(), second.PodUID)
	require.NoError(t, err)
	require.NotEqualValues(t, 3, got.JobID)
	require.Equal(t, fleet.JobQueued, h.jobState(3))
}

// SCALE-2: what a cap blocks is reported as such, and asks for no runner.
func TestSignals_SCALE2_RepositoryCap(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.capped(acme, 10, 2)
	for id := int64(1); id <= 5; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog")))
	}
	h.record(job(fleet.JobEventQueued, 6, in("acme/small")))
	before := h.asks(d, c)["linux"]
	require.Equal(t, 3, before.Queued)
	require.Equal(t, blocked(runnerapi.BlockedRepository, 3), before.Blocked)
	require.Len(t, h.claims(linuxPool("linux"), 5), 3)
	after := h.asks(d, c)["linux"]
	require.Zero(t, after.Queued)
	require.Equal(t, blocked(runnerapi.BlockedRepository, 3), after.Blocked)
	require.EqualValues(t, 3, h.account("acme").Blocked)
	lanes, err := h.store.ParkedLanes(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, lanes["held"], "a pick has nothing to do with it")
}

// The pass makes up for room that no end of a claim released.
func TestReturnBlocked_MakesGood(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 1)
	for id := int64(1); id <= 4; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog")))
	}
	require.Len(t, h.claims(linuxPool("linux"), 4), 1)
	ledgertest.Exec(t, h.url, `UPDATE runner_claims SET state = 'spent', ended_at = now()`) // unseen
	require.Empty(t, h.claims(linuxPool("linux"), 4))
	require.NoError(t, h.store.ReturnBlocked(t.Context()))
	require.Len(t, h.claims(linuxPool("linux"), 4), 1)
}

// CLAIM-5, RECV-7: however many repositories of other accounts, and of its own, hold jobs, the pass reaches each.
func TestReturnBlocked_RECV7_ComesToEveryRepository(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 1)
	h.record(job(fleet.JobEventQueued, 1, in("acme/zoo")))
	ledgertest.Exec(t, h.url, `INSERT INTO accounts (id, login, kind, created_at, updated_at) VALUES (7, 'other', 'Organization', now(), now())`)
	ledgertest.Exec(t, h.url, `INSERT INTO account_limits (account_id, platform, milli_cpu, memory_mb, jobs, repository_jobs)
		VALUES (7, 'linux', 1000, 1024, 1, 1)`)
	const held = `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
		label_key, state, held, queued_at, updated_at)
		SELECT $1 + n, $2, $3 || to_char(n, 'FM0000'), 1, 1, '', '', '', '', label_key, 'queued', $4, now(), now()
		FROM workflow_jobs, generate_series(1, $5::int) n WHERE workflow_jobs.id = 1`
	ledgertest.Exec(t, h.url, held, 1000, acme.ID, "acme/r", "repository_removed", 1200)
	ledgertest.Exec(t, h.url, held, 9000, 7, "other/r", "repository_limit", 1)
	ledgertest.Exec(t, h.url, `UPDATE workflow_jobs SET held = 'repository_limit' WHERE id = 1`)
	require.NoError(t, h.store.ReturnBlocked(t.Context()))
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE held = 'repository_limit'`))
}

func TestWithinShares_CLAIM5_TheOldestOfEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []dispatch.QueuedJob
		for i := range rapid.IntRange(0, 30).Draw(t, "jobs") {
			jobs = append(jobs, dispatch.QueuedJob{
				ID: int64(i), AccountID: rapid.Int64Range(1, 2).Draw(t, "account"), Repository: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "repository")),
			})
		}
		left := func(r dispatch.Repository) (int64, bool) { return int64(len(r.Name)) + r.AccountID, r.AccountID == 1 }
		within, crowded := dispatch.WithinShares(jobs, left)
		require.Len(t, jobs, len(within)+len(crowded))
		taken := map[dispatch.Repository]int64{}
		for _, j := range within {
			taken[j.Repo()]++
		}
		for _, j := range crowded {
			require.EqualValues(t, 1, j.AccountID, "without a cap nothing is crowded")
			n, _ := left(j.Repo())
			require.Equal(t, n, taken[j.Repo()])
			for _, k := range within {
				require.False(t, k.Repo() == j.Repo() && k.ID > j.ID, "the oldest go first")
			}
		}
	})
}

// A job is set aside only once its repository's share is used up, not because more jobs than polls were read.
func TestCap_CLAIM5_WhatHasRoomIsNotSetAside(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 3)
	pool := linuxPool("linux", "linux", "big")
	for id := int64(1); id <= 4; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog"), labelled([]string{"linux", "big"}[id%2])))
	}
	batch := func(polls int) []dispatch.Claim {
		b := h.batchOf(pool, "", polls)
		b.LabelKeys = []string{dispatch.LabelKey([]string{"linux"}), dispatch.LabelKey([]string{"big"})}
		result, err := h.store.ClaimBatch(t.Context(), b)
		require.NoError(t, err)
		return result.Claims
	}
	require.Len(t, batch(2), 2)
	require.Zero(t, h.account("acme").Blocked, "there is room for one more")
	require.Len(t, batch(2), 1)
	require.EqualValues(t, 1, h.account("acme").Blocked)
}

// A job that came back and is cancelled before a runner takes it leaves its turn to the next one.
func TestCap_CLAIM5_CancelledTurnIsPassedOn(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 1)
	for id := int64(1); id <= 3; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog")))
	}
	first := h.claims(linuxPool("linux"), 3)
	require.Len(t, first, 1)
	h.finish(first[0])
	h.record(job(fleet.JobEventCancelled, 2))
	next := h.claims(linuxPool("linux"), 3)
	require.Len(t, next, 1)
	require.EqualValues(t, 3, next[0].JobID)
}

// EXCL-6: without the setting no cap counts and no runner is registered at a repository, whatever the ledger says: searches
// for runners at GitHub skip repositories.
func TestCap_EXCL6_OnlyWhereTheSettingIsOn(t *testing.T) {
	h := newHarness(t)
	h.capped(acme, 10, 1)
	for id := int64(1); id <= 4; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/hog")))
	}
	require.Len(t, h.claims(linuxPool("linux"), 4), 1)
	require.EqualValues(t, 3, h.account("acme").Blocked)
	off, err := postgres.Open(t.Context(), h.url, 0)
	require.NoError(t, err)
	t.Cleanup(off.Close)
	h.store = off
	require.NoError(t, h.store.ReturnBlocked(t.Context()))
	later := h.claims(linuxPool("linux"), 4)
	require.Len(t, later, 3, "what was blocked comes back")
	require.EqualValues(t, 3, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE scope = 'acme'`))
	require.False(t, h.claim(dispatch.Pod{UID: later[0].PodUID}).Account.RepositoryRunners)
	one := int64(1)
	var conflict *admin.ConflictError
	_, err = h.store.ChangeLimits(t.Context(), change("acme"), map[string]adminapi.LimitsChange{"linux": {JobsPerRepository: &one}})
	require.ErrorAs(t, err, &conflict)
	require.Contains(t, conflict.Sentence, "--repository-caps")
}
