package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

var globex = dispatch.Account{ID: 2, Login: "globex", InstallationID: 102}

// crowded has a pool of so many labels, and acme queue a job for each of its label sets, as room for one. A job of acme runs. It returns the keys of
// the label sets, and that job's claim.
func (h *harness) crowded(labels int, fair bool) (dispatch.Pool, []string, dispatch.Claim) {
	h.t.Helper()
	h.install(globex)
	h.capped(acme, 1, 0)
	var own []string
	for n := range labels {
		own = append(own, fmt.Sprintf("label-%d", n))
	}
	pool := linuxPool("wide", own...)
	pool.FairShare = fair
	var keys []string
	for choice := 1; choice < 1<<labels; choice++ {
		var asked []string
		for n, label := range own {
			if choice&(1<<n) != 0 {
				asked = append(asked, label)
			}
		}
		keys = append(keys, dispatch.LabelKey(asked))
		h.record(job(fleet.JobEventQueued, int64(choice), labelled(asked...)))
	}
	first := h.batchOf(pool, keys[0], 1)
	first.LabelKeys = keys
	result, err := h.store.ClaimBatch(h.t.Context(), first)
	require.NoError(h.t, err)
	require.Len(h.t, result.Claims, 1)
	return pool, keys, result.Claims[0]
}

// rounds runs batches for one fresh poll each until one finds nothing more, and returns how many there were, and their claims.
func (h *harness) rounds(pool dispatch.Pool, keys []string) (n int, claims []dispatch.Claim) {
	h.t.Helper()
	for more := true; more; n++ {
		require.Less(h.t, n, len(keys), "batches come to an end")
		b := h.batchOf(pool, keys[0], 1)
		b.LabelKeys = keys
		result, err := h.store.ClaimBatch(h.t.Context(), b)
		require.NoError(h.t, err)
		claims = append(claims, result.Claims...)
		more = result.More
	}
	return n, claims
}

func (h *harness) parked() map[string]int64 {
	h.t.Helper()
	parked, err := h.store.ParkedLanes(h.t.Context())
	require.NoError(h.t, err)
	return parked
}

// CLAIM-5: an account at its limit with jobs for very many label sets of a pool delays no other account: whatever its lanes' number, and
// although each end of a job unparks all of them.
func TestClaimBatch_CLAIM5_ManyLanesOfAFullAccountAreParkedAtOnce(t *testing.T) {
	for _, fair := range []bool{false, true} {
		h := newHarness(t)
		pool, keys, running := h.crowded(8, fair)
		n, claims := h.rounds(pool, keys)
		require.Empty(t, claims)
		require.LessOrEqual(t, n, 3)
		require.EqualValues(t, len(keys), h.parked()["limit"])

		h.record(job(fleet.JobEventQueued, 1000, from(globex), labelled("label-0"))) // it is younger than all of acme's
		h.finish(running)
		n, claims = h.rounds(pool, keys)
		require.LessOrEqual(t, n, 3)
		require.Len(t, claims, 2, "one of each")
		require.ElementsMatch(t, []int64{acme.ID, globex.ID}, []int64{claims[0].Account.ID, claims[1].Account.ID})
		require.EqualValues(t, len(keys)-1, h.parked()["limit"])
	}
}

// CLAIM-5: so it is also where a job of that account ends between any two batches, so that it has room for one in each.
func TestClaimBatch_CLAIM5_AnAccountWithRoomForOneDoesNotHideOthers(t *testing.T) {
	for _, fair := range []bool{false, true} {
		h := newHarness(t)
		pool, keys, running := h.crowded(5, fair)
		h.record(job(fleet.JobEventQueued, 1000, from(globex), labelled("label-0")))
		h.record(job(fleet.JobEventQueued, 1001, from(globex), labelled("label-1")))
		served := map[int64]int{}
		for range 2 {
			h.finish(running)
			b := h.batchOf(pool, keys[0], 2)
			b.LabelKeys = keys
			result, err := h.store.ClaimBatch(t.Context(), b)
			require.NoError(t, err)
			for _, claim := range result.Claims {
				served[claim.Account.ID]++
				if claim.Account.ID == acme.ID {
					running = claim
				}
			}
		}
		require.Equal(t, map[int64]int{acme.ID: 2, globex.ID: 2}, served)
	}
}

// CLAIM-5, RECV-7: no lane that was parked with very many others is forgotten: each of the account's jobs gets its turn, also one that
// is queued while all of them are parked, and one for whose lane a larger limit makes room.
func TestClaimBatch_RECV7_EachOfManyLanesHasItsTurn(t *testing.T) {
	h := newHarness(t)
	pool, keys, running := h.crowded(5, false)
	h.rounds(pool, keys)
	h.record(job(fleet.JobEventQueued, 1000, labelled("label-0")))
	done := map[int64]bool{}
	for len(done) < len(keys)-1 {
		done[running.JobID] = true
		h.finish(running)
		_, claims := h.rounds(pool, keys)
		require.Len(t, claims, 1)
		running = claims[0]
	}
	h.capped(acme, 2, 0)
	_, claims := h.rounds(pool, keys)
	require.Len(t, claims, 1)
	require.EqualValues(t, 1000, claims[0].JobID, "the youngest")
}

// A batch parks its account's lanes beside a job that is queued concurrently in one of them: that lane is not parked unseen.
func TestClaimBatch_RECV7_ALaneThatIsFedMeanwhileIsNotParkedUnseen(t *testing.T) {
	h := newHarness(t)
	pool, keys, running := h.crowded(5, false)
	require.NoError(t, h.store.PodStopped(t.Context(), running.PodUID, time.Now(), nil)) // its job is not over: there is no room yet
	commit := ledgertest.Hold(t, h.url, `UPDATE job_lanes SET version = version + 1 WHERE label_key = '["label-4"]'`)
	b := h.batchOf(pool, keys[0], 1)
	b.LabelKeys = keys
	done := make(chan error, 1)
	go func() {
		_, err := h.store.ClaimBatch(t.Context(), b)
		done <- err
	}()
	h.eventually("the batch waits for the lane", func() bool {
		return ledgertest.Int(t, h.url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
	})
	commit()
	require.NoError(t, await.Receive(t, done, "the batch that waited returns"))
	require.EqualValues(t, len(keys)-1, h.parked()["limit"])
	require.EqualValues(t, 1, h.parked()[""])
}

// CLAIM-5, RECV-7: replicas claim, and pods end, concurrently, for two accounts that are at their limits all the time with lanes that are parked
// together. Each job has its turn, and no transaction waits for a deadlock to be found.
func TestClaimBatch_RECV7_ManyLanesUnderConcurrency(t *testing.T) {
	h := newHarness(t)
	pool, keys, running := h.crowded(5, false)
	h.capped(globex, 2, 0)
	for n, key := range keys {
		labels, _ := dispatch.LabelsOf(key)
		h.record(job(fleet.JobEventQueued, int64(1000+n), from(globex), labelled(labels...)))
	}
	h.finish(running)
	const workers = 4
	var done atomic.Int64
	done.Add(1)
	want := int64(2 * len(keys))
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for attempts := 0; done.Load() < want && attempts < 2000; attempts++ {
				b := h.batchOf(pool, keys[0], 2)
				b.LabelKeys = keys
				result, err := h.store.ClaimBatch(context.Background(), b)
				if err != nil {
					t.Errorf("claiming: %v", err)
					return
				}
				for _, claim := range result.Claims {
					h.finishAsync(t, claim)
					done.Add(1)
				}
			}
		})
	}
	await.Return(t, wg.Wait, "the workers return")
	require.Equal(t, want, done.Load(), "no lane was forgotten")
	ledgertest.Exec(t, h.url, `SELECT pg_stat_force_next_flush()`)
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}
