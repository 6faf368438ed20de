package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// CLAIM-2: when a transaction that moves claim and job fails half-way, neither has moved.
func TestUnclaim_CLAIM2_ClaimAndJobMoveTogether(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	result, err := h.store.ClaimBatch(t.Context(), h.batch(pod))
	require.NoError(t, err)
	generation := result.Claims[0].Generation

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.store.Unclaim(ctx, pod.UID, generation, time.Now())
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, fleet.ClaimClaimed, h.claim(pod).State)
	require.Equal(t, fleet.JobClaimed, h.jobState(1))

	stale, err := h.store.Unclaim(t.Context(), pod.UID, generation-1, time.Now())
	require.NoError(t, err)
	require.False(t, stale)
	require.Equal(t, fleet.JobClaimed, h.jobState(1), "a stale actor moves neither")

	done, err := h.store.Unclaim(t.Context(), pod.UID, generation, time.Now())
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, fleet.ClaimNone, h.claim(pod).State)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
}

// CLAIM-3, CLAIM-4: after late, repeated or reordered events a finished job stays finished.
func TestRecordJob_CLAIM3_CLAIM4_TerminalJobsNeverMove(t *testing.T) {
	h := newHarness(t)
	late := []fleet.JobEvent{fleet.JobEventQueued, fleet.JobEventWaiting, fleet.JobEventStarted, fleet.JobEventCompleted, fleet.JobEventCancelled}
	for i, first := range []fleet.JobEvent{fleet.JobEventCompleted, fleet.JobEventCancelled} {
		id := int64(10 + i)
		h.record(job(first, id)) // completed may arrive first
		before := h.jobState(id)
		require.True(t, before.Terminal())
		for _, event := range late {
			h.record(job(event, id, by("bp-unknown-1")))
			require.Equal(t, before, h.jobState(id), "after a late %s", event)
		}
	}
	pod := h.pod("linux")
	result, err := h.store.ClaimBatch(t.Context(), h.batch(pod))
	require.NoError(t, err)
	require.Empty(t, result.Claims)
}

// CLAIM-4: the tombstone alone bars the way, also when the job's row was pruned.
func TestRecordJob_CLAIM4_TombstoneBarsAPrunedJob(t *testing.T) {
	h := newHarness(t)
	h.record(job(fleet.JobEventCompleted, 5))
	ledgertest.Exec(t, h.url, `DELETE FROM workflow_jobs WHERE id = 5`)
	require.Equal(t, fleet.JobAbsent, h.jobState(5))
	rec := h.record(job(fleet.JobEventQueued, 5))
	require.Equal(t, fleet.Keep, rec.Outcome)
	require.Equal(t, fleet.JobAbsent, h.jobState(5))
}

// A delivery that arrives twice is applied once.
func TestRecordJob_DeliveriesAreDeduplicated(t *testing.T) {
	h := newHarness(t)
	d := h.delivery("workflow_job")
	for i := range 3 {
		rec, err := h.store.RecordJob(t.Context(), d, job(fleet.JobEventQueued, 1))
		require.NoError(t, err)
		require.Equal(t, i == 0, rec.Fresh)
	}
}

// CLAIM-5: under any concurrency the account's budget holds, and a busy account does not block another.
func TestClaimBatch_CLAIM5_BudgetHoldsUnderConcurrency(t *testing.T) {
	h := newHarness(t)
	small := dispatch.Account{ID: 2, Login: "small", InstallationID: 102}
	h.install(small)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 5000, MemoryMB: 1 << 20, Jobs: 100}))
	for id := int64(1); id <= 40; id++ {
		h.queue(id)
	}
	for id := int64(101); id <= 103; id++ {
		h.record(job(fleet.JobEventQueued, id, from(small)))
	}
	claimed := map[int64]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		var pods []dispatch.Pod
		for range 5 {
			pods = append(pods, h.pod("linux"))
		}
		b := h.batch(pods...)
		wg.Go(func() {
			for {
				result, err := h.store.ClaimBatch(context.Background(), b)
				if err != nil {
					t.Errorf("claiming: %v", err)
					return
				}
				mu.Lock()
				for _, c := range result.Claims {
					claimed[c.Account.ID]++
				}
				mu.Unlock()
				if !result.More {
					return
				}
				b.Polls = b.Polls[len(result.Claims):]
				if len(b.Polls) == 0 {
					return
				}
			}
		})
	}
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Equal(t, 5, claimed[acme.ID], "5 CPUs, one each")
	require.Equal(t, 3, claimed[small.ID], "the busy account does not block the other")
}

// CLAIM-5: room that a finished job's pod frees is used at once.
func TestPoll_CLAIM5_FreedRoomWakesTheQueue(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 1000, MemoryMB: 1024, Jobs: 1}))
	d := h.replica()
	h.queue(1, 2)
	pod := h.pod("linux")
	first := h.started(d, pod, 1)
	waiting := h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("the lane is parked", func() bool {
		parked, err := h.store.ParkedLanes(t.Context())
		require.NoError(t, err)
		return parked["limit"] == 1
	})
	h.record(job(fleet.JobEventCompleted, 1, by(first.JIT.Name)))
	_, err := d.PodStopped(t.Context(), pod.UID, time.Now(), nil)
	require.NoError(t, err)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

// CLAIM-6: the label is stamped once the configuration is acknowledged and never before; three attempts, and giving
// up fails nothing.
func TestAcknowledge_CLAIM6_LabelFollowsTheAcknowledgement(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	h.cluster.OnStamp(func(dispatch.Pod) error {
		c, err := h.store.Claim(context.Background(), pod.UID)
		if err != nil || !c.Acknowledged {
			t.Errorf("stamped before the acknowledgement (%v)", err)
		}
		return dispatchtest.ErrAPIServer
	})
	answer := h.served(d, pod)
	require.Empty(t, h.cluster.Stamped(), "a pod that has not its configuration needs the idle policy")
	won, err := d.Acknowledge(t.Context(), pod, answer.Generation)
	require.NoError(t, err)
	require.True(t, won)
	labelled := make(chan struct{})
	go func() { d.Label(await.Context(t), pod); close(labelled) }()
	h.eventually("three attempts, 100 ms apart", func() bool {
		h.timers.fire(100 * time.Millisecond)
		return len(h.cluster.Stamped()) == 3
	})
	await.Receive(t, labelled, "giving up on the label does not fail the dispatch")
	require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
	require.Equal(t, 0, h.timers.fire(100*time.Millisecond))
}

// CLAIM-6: that the poller has terminated, seen through the watch, is an acknowledgement too.
func TestPodChanged_CLAIM6_TerminatedPollerIsAnAcknowledgement(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	h.served(d, pod)
	pod.PollerEnded = true
	h.cluster.PutPod(pod)
	d.PodChanged(pod)
	h.eventually("acknowledged, and its owner noted", func() bool {
		shown, _ := h.cluster.Pod(pod.UID)
		return h.claim(pod).Acknowledged && shown.OwnerID == acme.ID
	})
	require.Empty(t, h.cluster.Stamped(), "TEN-8: its runner may have started")
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, answer.Reply)
}

// CLAIM-6: egress that is cut the moment the label appears costs no configuration, job or pod: when the pod asks
// again through the cut, it already has everything.
func TestAcknowledge_CLAIM6_EgressCutAtTheLabelCostsNothing(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	var mu sync.Mutex
	staged, cut := false, false
	h.cluster.OnStamp(func(dispatch.Pod) error { // the gate: from here on the pod does not reach the server
		mu.Lock()
		defer mu.Unlock()
		cut = true
		if !staged {
			t.Error("egress was cut before the configuration was staged: job and pod are lost")
		}
		return nil
	})
	answer := h.served(d, pod)
	mu.Lock()
	require.False(t, cut, "the answer could not have been delivered")
	staged = true
	mu.Unlock()
	_, err := d.Acknowledge(t.Context(), pod, answer.Generation)
	require.NoError(t, err)
	d.Label(t.Context(), pod)
	mu.Lock()
	require.True(t, cut)
	mu.Unlock()
	h.forge.Start(answer.JIT.Name, 0)
	h.record(job(fleet.JobEventStarted, 1, by(answer.JIT.Name)))
	h.record(job(fleet.JobEventCompleted, 1, by(answer.JIT.Name)))
	require.Equal(t, fleet.JobCompleted, h.jobState(1))
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
}

// CLAIM-8: a completed job frees the claim of the runner that executed it, not the claim that was made for it.
func TestRecordJob_CLAIM8_ReleaseIsByExecutor(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1, 2)
	a, b := h.pod("linux"), h.pod("linux")
	first := h.served(d, a)
	second := h.served(d, b)
	require.Equal(t, int64(1), h.claim(a).JobID)

	// Another account's runner of that name is not affected by this event.
	other := dispatch.Account{ID: 9, Login: "other", InstallationID: 109}
	h.install(other)
	h.record(job(fleet.JobEventCompleted, 77, from(other), by(first.JIT.Name)))
	require.Equal(t, fleet.ClaimMinted, h.claim(a).State)

	// Job 1 was executed by the runner minted for job 2.
	h.record(job(fleet.JobEventCompleted, 1, by(second.JIT.Name)))
	require.Equal(t, fleet.ClaimSpent, h.claim(b).State)
	require.Equal(t, fleet.ClaimMinted, h.claim(a).State, "the live runner keeps its slot")
	require.Equal(t, int64(2), h.claim(a).JobID, "and takes over the job that lost its runner")
	require.Equal(t, fleet.JobMinted, h.jobState(2))

	// A job cancelled while it was queued names no runner: nothing is released.
	h.record(job(fleet.JobEventCancelled, 2))
	require.Equal(t, fleet.ClaimMinted, h.claim(a).State)
	require.Zero(t, h.claim(a).JobID)
}

// CLAIM-9: in_progress re-binds. The job minted for goes back to the queue, the job named runs on this pod.
func TestRecordJob_CLAIM9_InProgressReBinds(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1, 2)
	pod := h.pod("linux")
	answer := h.served(d, pod)
	require.Equal(t, int64(1), h.claim(pod).JobID)
	h.forge.Start(answer.JIT.Name, 0)
	rec := h.record(job(fleet.JobEventStarted, 2, by(answer.JIT.Name)))
	require.Equal(t, int64(1), rec.Displaced)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	require.Equal(t, fleet.JobExecuting, h.jobState(2))
	require.Equal(t, fleet.ClaimExecuting, h.claim(pod).State)
	require.Equal(t, int64(2), h.claim(pod).JobID)
	next := h.served(d, h.pod("linux")) // the displaced job is dispatchable again
	require.NotEmpty(t, next.JIT.Name)
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// CLAIM-9: two runners that swapped jobs need no third mint, in whichever order GitHub reports them.
func TestRecordJob_CLAIM9_SwappedRunnersNeedNoThirdMint(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1, 2)
	a, b := h.pod("linux"), h.pod("linux")
	first, second := h.served(d, a), h.served(d, b)
	var wg sync.WaitGroup
	started := []dispatch.JobEvent{
		job(fleet.JobEventStarted, 2, by(first.JIT.Name)), job(fleet.JobEventStarted, 1, by(second.JIT.Name)),
	}
	deliveries := []dispatch.Delivery{h.delivery("workflow_job"), h.delivery("workflow_job")}
	for i := range started {
		wg.Go(func() {
			if _, err := h.store.RecordJob(context.Background(), deliveries[i], started[i]); err != nil {
				t.Errorf("recording: %v", err)
			}
		})
	}
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Equal(t, int64(2), h.claim(a).JobID)
	require.Equal(t, int64(1), h.claim(b).JobID)
	require.Equal(t, fleet.JobExecuting, h.jobState(1))
	require.Equal(t, fleet.JobExecuting, h.jobState(2))
	require.Equal(t, 2, h.forge.Mints())
}

// CLAIM-13: an in_progress for a runner of a spent, retired or missing row is adopted when GitHub confirms that it
// runs: the pod is busy again and the account charged.
func TestAdoption_CLAIM13_RunningRunnerWithoutLiveClaimIsAdopted(t *testing.T) {
	cases := map[string]func(h *harness, d *dispatch.Dispatcher, pod dispatch.Pod) string{
		"spent": func(h *harness, d *dispatch.Dispatcher, pod dispatch.Pod) string {
			h.queue(1)
			name := h.started(d, pod, 1).JIT.Name
			h.record(job(fleet.JobEventCompleted, 1, by(name)))
			require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
			return name
		},
		"retired": func(h *harness, d *dispatch.Dispatcher, pod dispatch.Pod) string {
			_, err := d.Retire(t.Context(), []dispatch.Pod{pod})
			require.NoError(t, err)
			return h.ghost(pod)
		},
		"missing": func(h *harness, _ *dispatch.Dispatcher, pod dispatch.Pod) string { return h.ghost(pod) },
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			pod := h.pod("linux")
			runner := prepare(h, d, pod)
			h.forge.Start(runner, 0)
			h.record(job(fleet.JobEventStarted, 50, by(runner)))
			h.eventually("adopted", func() bool { return h.claim(pod).State == fleet.ClaimExecuting })
			c := h.claim(pod)
			require.Equal(t, int64(50), c.JobID)
			require.Equal(t, acme.ID, c.Account.ID)
			answers, err := d.Retire(t.Context(), []dispatch.Pod{pod})
			require.NoError(t, err)
			require.Equal(t, "busy", string(answers[0].Verdict))
			h.record(job(fleet.JobEventCompleted, 50, by(runner)))
			require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
		})
	}
}

// CLAIM-13: late messages revive no claim.
func TestAdoption_CLAIM13_FinishedRunnerIsNotRevived(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pod := h.pod("linux")
	h.queue(1)
	runner := h.started(d, pod, 1).JIT.Name
	h.record(job(fleet.JobEventCompleted, 1, by(runner)))
	h.forge.Set(func(g *dispatchtest.GitHub) { delete(g.Runners, runner) }) // GitHub removes what was ephemeral
	h.record(job(fleet.JobEventStarted, 60, by(runner)))
	h.eventually("decided", func() bool { return ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_adoptions`) == 0 })
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
}

// ghost registers a runner for the pod that our rows know nothing of.
func (h *harness) ghost(pod dispatch.Pod) string {
	name, err := runnerpod.RunnerName(pod.UID, 1)
	require.NoError(h.t, err)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.NextID++; g.Runners[name] = &dispatchtest.Runner{ID: g.NextID} })
	return name
}

// CLAIM-12: two live pools that serve one label set make its jobs wait; a terminating pool does not count.
func TestRoute_CLAIM12_AmbiguousLabelsWait(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	twin := linuxPool("twin", "linux")
	h.cluster.PutPool(twin)
	d.PoolsChanged()
	h.queue(1)
	waiting := h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("the poll waits", func() bool { return h.timers.pendingOf(25*time.Second) > 0 })
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	twin.Terminating = true
	h.cluster.PutPool(twin)
	d.PoolsChanged()
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

func TestChoose_FIFOAndFairShare(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	jobs := []dispatch.QueuedJob{
		{ID: 1, AccountID: 1, QueuedAt: at(1)}, {ID: 2, AccountID: 1, QueuedAt: at(2)}, {ID: 3, AccountID: 1, QueuedAt: at(3)},
		{ID: 4, AccountID: 2, QueuedAt: at(4)}, {ID: 5, AccountID: 2, QueuedAt: at(5)},
	}
	ids := func(chosen []dispatch.QueuedJob) (out []int64) {
		for _, j := range chosen {
			out = append(out, j.ID)
		}
		return out
	}
	room := map[int64]int64{1: 2, 2: 10}
	require.Equal(t, []int64{1, 2, 4}, ids(dispatch.Choose(jobs, room, nil, 3, false)))
	require.Equal(t, []int64{4, 5, 1}, ids(dispatch.Choose(jobs, room, map[int64]int64{1: 2}, 3, true)))
	require.Equal(t, []int64{1, 4, 2}, ids(dispatch.Choose(jobs, room, nil, 3, true)))
}

func TestForget_EXCL1_RowLivesUntilTheUIDIsProvenGone(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pod := h.pod("linux")
	_, err := d.Retire(t.Context(), []dispatch.Pod{pod})
	require.NoError(t, err)
	d.PodGone(pod) // the watch says so, the API server does not
	other := dispatch.Pod{Namespace: "runners", Name: "other", UID: uuid.NewString()}
	_, err = d.Retire(t.Context(), []dispatch.Pod{other})
	require.NoError(t, err)
	d.PodGone(other) // never was: proven gone, and tasks run in order
	h.eventually("the proven one is forgotten", func() bool { return h.claim(other).State == fleet.ClaimNone })
	require.Equal(t, fleet.ClaimRetired, h.claim(pod).State)
}
