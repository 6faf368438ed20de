package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// FairShare gives each free runner to the account that has least running, then by age; FIFO by age alone. Neither gives an
// account more than it has room for, assigns a job twice, or leaves a runner without a job that could have one.
func TestChoose_CLAIM5_FIFOAndFairShareProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room, running, queued := map[int64]int64{}, map[int64]int64{}, map[int64]int64{}
		accounts := int64(rapid.IntRange(1, 5).Draw(t, "accounts"))
		for a := int64(1); a <= accounts; a++ {
			room[a], running[a] = rapid.Int64Range(0, 6).Draw(t, "room"), rapid.Int64Range(0, 6).Draw(t, "running")
		}
		var jobs []dispatch.QueuedJob
		for id := range rapid.Int64Range(0, 40).Draw(t, "jobs") {
			j := dispatch.QueuedJob{
				ID: id, AccountID: rapid.Int64Range(1, accounts).Draw(t, "account"), QueuedAt: time.Unix(rapid.Int64Range(0, 9).Draw(t, "at"), 0),
			}
			jobs = append(jobs, j)
			queued[j.AccountID]++
		}
		polls, fair := rapid.IntRange(0, 20).Draw(t, "polls"), rapid.Bool().Draw(t, "fair")
		chosen := dispatch.Choose(jobs, room, running, polls, fair)

		got, seen := map[int64]int64{}, map[int64]bool{}
		for _, j := range chosen {
			require.False(t, seen[j.ID], "once")
			seen[j.ID] = true
			got[j.AccountID]++
		}
		possible := int64(0)
		for a := range room {
			require.LessOrEqual(t, got[a], room[a])
			possible += min(room[a], queued[a])
		}
		require.EqualValues(t, min(int64(polls), possible), len(chosen), "no runner stays idle for nothing")
		for _, j := range jobs {
			if seen[j.ID] || got[j.AccountID] == room[j.AccountID] {
				continue // it was chosen, or its account is at its limit
			}
			for _, k := range chosen {
				older := k.QueuedAt.Before(j.QueuedAt) || k.QueuedAt.Equal(j.QueuedAt) && k.ID < j.ID
				switch {
				case k.AccountID == j.AccountID || !fair:
					require.True(t, older, "an older job was passed over")
				default: // k's account had no more running than j's when k was chosen last
					require.LessOrEqual(t, running[k.AccountID]+got[k.AccountID]-1, running[j.AccountID]+got[j.AccountID])
				}
			}
		}
	})
}

// A small account beside a hog: with FIFO it waits for the hog's whole backlog, with FairShare it has the next runner; and
// the hog has every runner that no other account needs.
func TestFairShare_SmallAccountBesideAHog(t *testing.T) {
	for _, fair := range []bool{false, true} {
		h := newHarness(t)
		small := dispatch.Account{ID: 2, Login: "small", InstallationID: 102}
		h.install(small)
		h.capped(acme, 1000, 0)
		pool := linuxPool("linux")
		pool.FairShare = fair
		for id := int64(1); id <= 40; id++ {
			h.record(job(fleet.JobEventQueued, id))
		}
		running := h.claims(pool, 10) // all the runners there are
		require.Len(t, running, 10, "no other account wants them")
		for id := int64(101); id <= 103; id++ {
			h.record(job(fleet.JobEventQueued, id, from(small)))
		}
		h.finish(running[0])
		waited := 0
		for served := 0; served < 3; waited++ { // one runner comes free at a time
			require.Less(t, waited, 40)
			next := h.claims(pool, 1)
			require.Len(t, next, 1)
			if next[0].Account.ID == small.ID {
				served++
				continue // it runs on
			}
			h.finish(next[0])
		}
		if fair {
			require.Equal(t, 3, waited, "the next three runners")
		} else {
			require.Equal(t, 33, waited, "after the thirty jobs that came before")
		}
	}
}

// CLAIM-5: neither way of queueing exceeds an account's budget under concurrency, on a real ledger, while jobs end.
func TestFairShare_CLAIM5_NeverExceedsBudgets(t *testing.T) {
	for _, fair := range []bool{false, true} {
		h := newHarness(t)
		accounts := []dispatch.Account{acme, {ID: 2, Login: "b", InstallationID: 102}, {ID: 3, Login: "c", InstallationID: 103}}
		most := map[int64]int{1: 7, 2: 3, 3: 1}
		for i, a := range accounts {
			h.install(a)
			h.capped(a, int64(most[a.ID]), 0)
			for n := range int64(25) {
				h.record(job(fleet.JobEventQueued, n*3+int64(i)+1, from(a)))
			}
		}
		pool := linuxPool("linux")
		pool.FairShare = fair
		var mu sync.Mutex
		live, total := map[int64]int{}, 0
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for {
					b := h.batchOf(pool, dispatch.LabelKey(pool.Labels), 3)
					result, err := h.store.ClaimBatch(context.Background(), b)
					if err != nil {
						t.Errorf("claiming: %v", err)
						return
					}
					mu.Lock()
					for _, c := range result.Claims {
						if live[c.Account.ID]++; live[c.Account.ID] > most[c.Account.ID] {
							t.Errorf("account %d has %d of %d", c.Account.ID, live[c.Account.ID], most[c.Account.ID])
						}
						total++
					}
					done := total == 75
					mu.Unlock()
					for _, c := range result.Claims {
						mu.Lock() // before the ledger: what counts here is never more than what it counts
						live[c.Account.ID]--
						mu.Unlock()
						h.finishAsync(t, c)
					}
					if done || t.Failed() {
						return
					}
				}
			})
		}
		await.Return(t, wg.Wait, "the concurrent calls return")
		require.Equal(t, 75, total)
	}
}

// finishAsync is finish for other goroutines than the test's.
func (h *harness) finishAsync(t *testing.T, c dispatch.Claim) {
	_, err := h.store.RecordJob(context.Background(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()},
		job(fleet.JobEventCompleted, c.JobID, by(c.RunnerName), from(c.Account)))
	if err == nil {
		err = h.store.PodStopped(context.Background(), c.PodUID, time.Now(), nil)
	}
	if err != nil {
		t.Errorf("completing: %v", err)
	}
}
