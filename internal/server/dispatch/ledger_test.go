package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// CLAIM-13: one adoption that cannot be read, or whose installation does not answer, delays no other.
func TestAdoption_CLAIM13_OneThatFailsDelaysNoOther(t *testing.T) {
	h := newHarness(t)
	slow, pod := h.pod("linux"), h.pod("linux")
	hanging, runner := h.ghost(slow), h.ghost(pod)
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.OnFind = func(ctx context.Context, name string) {
			if name == hanging {
				<-ctx.Done()
			}
		}
	})
	h.forge.Start(runner, 0)
	ledgertest.Exec(t, h.url, `INSERT INTO runner_adoptions (runner_name, runner_id, pod_uid, account_id, job_id, scope, created_at, next_at)
		VALUES ('bad', 1, $1, 1, 7, '', now(), '2020-01-01')`, uuid.NewString())
	h.record(job(fleet.JobEventStarted, 51, by(hanging)))
	h.record(job(fleet.JobEventStarted, 50, by(runner)))
	h.replica()
	h.eventually("adopted", func() bool { return h.claim(pod).State == fleet.ClaimExecuting })
}

// CLAIM-2: an adoption that is void because the pod has a live claim leaves the job's own claim as it was.
func TestAdopt_CLAIM2_VoidAdoptionChangesNothing(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1, 2)
	a, b := h.pod("linux"), h.pod("linux")
	h.served(d, a)
	second := h.served(d, b)
	pool, _ := h.cluster.Pool(b.Pool)
	adopted, err := h.store.Adopt(t.Context(), dispatch.Adoption{
		RunnerName: second.JIT.Name, RunnerID: 9, PodUID: b.UID, Account: acme, JobID: 1, Scope: fleet.Scope{Owner: "acme"},
	}, b, pool, time.Now())
	require.NoError(t, err)
	require.False(t, adopted)
	require.Equal(t, int64(1), h.claim(a).JobID)
	require.Equal(t, int64(2), h.claim(b).JobID)
}

// EXCL-1: the row of a pod that was deleted before its work was known to be over is forgotten later, by the same
// proof.
func TestSweep_EXCL1_RowsOfPodsThatWentEarlierAreForgotten(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod, stays := h.pod("linux"), h.pod("linux")
	name := h.started(d, pod, 1).JIT.Name
	_, err := d.Retire(t.Context(), []dispatch.Pod{stays})
	require.NoError(t, err)
	h.cluster.DropPod(pod.UID)
	d.PodGone(pod) // still executing, for all we know
	h.record(job(fleet.JobEventCompleted, 1, by(name)))
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
	h.eventually("forgotten", func() bool {
		h.timers.fire(time.Minute)
		return h.claim(pod).State == fleet.ClaimNone
	})
	require.Equal(t, fleet.ClaimRetired, h.claim(stays).State)
}

// A lane that was parked because the pool's shape did not fit the budget is read again when the shape changes.
func TestRouting_LanesAreUnparkedWhenThePoolsShapeChanges(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 4000, MemoryMB: 1 << 20, Jobs: 9}))
	big := linuxPool("linux")
	big.Shape.MilliCPU = 16_000
	h.cluster.PutPool(big)
	d := h.replica()
	waiting := h.poll(t.Context(), d, h.pod("linux"))
	h.queue(1)
	h.eventually("parked", func() bool {
		parked, err := h.store.ParkedLanes(t.Context())
		require.NoError(t, err)
		return parked["limit"] == 1
	})
	h.cluster.PutPool(linuxPool("linux"))
	d.PoolsChanged()
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

// A lane's counter is a hint for fairness: that it drifted stops no claim from ending.
func TestRecordJob_DriftedCounterStopsNothing(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	name := h.started(d, pod, 1).JIT.Name
	ledgertest.Exec(t, h.url, `UPDATE job_lanes SET running = 0`)
	h.record(job(fleet.JobEventCompleted, 1, by(name)))
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
}

// GitHub's messages overtake each other: the end of an old installation does not end the new one, and a job event
// that brings an installation back wakes every lane of the account.
func TestInstallation_LateAndLostEvents(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.cluster.PutPool(linuxPool("gpu"))
	d.PoolsChanged()
	install := func(action string, id int64) {
		_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{
			Action: action, Account: dispatch.Account{ID: acme.ID, Login: acme.Login, InstallationID: id},
		})
		require.NoError(t, err)
	}
	install("created", 202)
	install("deleted", acme.InstallationID) // late
	renewed := acme
	renewed.InstallationID = 202
	h.record(job(fleet.JobEventQueued, 1, from(renewed)))
	h.served(d, h.pod("linux"))

	install("deleted", 202)
	waiting := h.poll(t.Context(), d, h.pod("linux"))
	parked := h.poll(t.Context(), d, h.pod("gpu"))
	ledgertest.Exec(t, h.url, `INSERT INTO label_sets VALUES ('["gpu"]', '{gpu}') ON CONFLICT DO NOTHING`)
	ledgertest.Exec(t, h.url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
		label_key, state, queued_at, updated_at) VALUES (2, 1, 'acme/app', 1, 1, 'b', 'ci', 'main', 'a', '["gpu"]', 'queued', now(), now())`)
	ledgertest.Exec(t, h.url, `INSERT INTO job_lanes (label_key, account_id, parked, head_at) VALUES ('["gpu"]', 1, 'suspended', now())`)
	d.Reconnected() // no notification named that lane
	reinstalled := acme
	reinstalled.InstallationID = 303
	h.record(job(fleet.JobEventQueued, 3, from(reinstalled))) // the installation event was lost
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, waiting, "the poll is answered").answer.Reply)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, parked, "the poll is answered").answer.Reply)
}

// A job belongs to the lane it was stored in, even if its repository's owner has another name when it is
// released.
func TestRecordJob_ReleasedJobFeedsItsOwnLane(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	beta := dispatch.Account{ID: 2, Login: "beta", InstallationID: 102}
	h.install(beta)
	h.record(job(fleet.JobEventWaiting, 1))
	h.record(job(fleet.JobEventQueued, 1, from(beta)))
	h.served(d, h.pod("linux"))
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// Batches and completions of one account touch the same lanes; they take them in one order, so that none waits for a
// deadlock to be found.
func TestClaimBatch_LanesAreLockedInOneOrder(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 1e9, MemoryMB: 1e9, Jobs: 1e6}))
	const lanes, workers, rounds = 6, 4, 25
	var keys []string
	for lane := range lanes {
		keys = append(keys, dispatch.LabelKey([]string{laneLabel(lane)}))
	}
	pool := linuxPool("linux")
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for round := range rounds {
				var polls []dispatch.Poll
				for lane := range lanes {
					id := int64(worker*100_000 + round*100 + lane)
					ev := job(fleet.JobEventQueued, id, labelled(laneLabel(lane)))
					if (lane+round)%2 == 0 {
						if _, err := h.store.RecordJob(context.Background(), delivery(), ev); err != nil {
							t.Errorf("queueing: %v", err)
						}
					}
					polls = append(polls, dispatch.Poll{Namespace: "runners", PodName: uuid.NewString(), PodUID: uuid.NewString()})
				}
				result, err := h.store.ClaimBatch(context.Background(), dispatch.Batch{
					Pool: pool, LabelKeys: keys, Polls: polls, Excluded: []int64{}, Now: time.Now(), Lease: time.Minute,
					Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {},
				})
				if err != nil {
					t.Errorf("claiming: %v", err)
				}
				for _, c := range result.Claims {
					ev := job(fleet.JobEventCompleted, c.JobID, by(c.RunnerName))
					if _, err := h.store.RecordJob(context.Background(), delivery(), ev); err != nil {
						t.Errorf("completing: %v", err)
					}
				}
			}
		})
	}
	await.Return(t, wg.Wait, "the concurrent calls return")
	ledgertest.Exec(t, h.url, `SELECT pg_stat_force_next_flush()`)
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT sum(running)::bigint FROM job_lanes`), "every charge was taken back")
}

func laneLabel(lane int) string { return string(rune('a'+lane)) + "-lane" }

func delivery() dispatch.Delivery {
	return dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()}
}
