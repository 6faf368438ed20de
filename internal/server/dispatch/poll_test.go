package dispatch_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

func TestPoll_AJobThatArrivesWakesTheWaitingPod(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pod := h.pod("linux")
	waiting := h.poll(t.Context(), d, pod)
	h.queue(7)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	require.Equal(t, "jit-of-"+got.answer.JIT.Name, got.answer.JIT.Encoded.Reveal())
	require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
	require.Equal(t, fleet.JobMinted, h.jobState(7))
}

func TestPoll_WaitingPollIsAnsweredEmptyWhenTheHoldEnds(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	waiting := h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("the hold has begun", func() bool { return h.timers.fire(runnerapi.PollHold) > 0 })
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyEmpty, got.answer.Reply)
}

// CLAIM-1: many polls at two replicas for few jobs, every job is given once, every pod gets at most one.
func TestPoll_CLAIM1_OneLiveClaimPerPodAndJob(t *testing.T) {
	h := newHarness(t)
	replicas := []*dispatch.Dispatcher{h.replica(), h.replica()}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	served := map[string]string{} // pod → runner
	var wg sync.WaitGroup
	var pods []dispatch.Pod
	for i := range 24 {
		pod := h.pod("linux")
		pods = append(pods, pod)
		wg.Go(func() {
			answer, err := replicas[i%2].Poll(ctx, pod, 0)
			if err == nil && answer.Reply == dispatch.ReplyServe {
				mu.Lock()
				defer mu.Unlock()
				served[pod.UID] = answer.JIT.Name
			}
		})
	}
	for id := int64(1); id <= 12; id++ {
		h.queue(id)
	}
	h.eventually("every job is served", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(served) == 12
	})
	stop()
	await.Return(t, wg.Wait, "the concurrent calls return")
	jobs := map[int64]int{}
	for _, pod := range pods {
		if c := h.claim(pod); c.State != fleet.ClaimNone {
			jobs[c.JobID]++
		}
	}
	require.Len(t, jobs, 12)
	for id, n := range jobs {
		require.Equal(t, 1, n, "job %d has %d claims", id, n)
	}
	require.Len(t, h.forge.Alive(), 12, "one registration a job")
}

// EXCL-1: claim and retire of one pod exclude each other, whichever comes first.
func TestRetire_EXCL1_ExactlyOneOfClaimAndRetireWins(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	granted, busy := 0, 0
	for i := range 30 {
		pod := h.pod("linux")
		id := int64(100 + i)
		waiting := h.poll(t.Context(), d, pod)
		var answers []runnerapi.RetireAnswer
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			answers, err = d.Retire(t.Context(), []dispatch.Pod{pod})
			require.NoError(t, err)
		})
		h.queue(id)
		await.Return(t, wg.Wait, "the concurrent calls return")
		switch answers[0].Verdict {
		case runnerapi.Granted:
			granted++
			got := await.Receive(t, waiting, "the poll is answered")
			require.NoError(t, got.err)
			require.Equal(t, dispatch.ReplyGone, got.answer.Reply)
			require.Equal(t, fleet.ClaimRetired, h.claim(pod).State)
			h.started(d, h.pod("linux"), id) // the job is not lost: another pod takes it
		case runnerapi.Busy:
			busy++
			got := await.Receive(t, waiting, "the poll is answered")
			require.NoError(t, got.err)
			require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
			require.Equal(t, "acme", answers[0].Owner)
		default:
			t.Fatalf("verdict %q", answers[0].Verdict)
		}
		h.record(job(fleet.JobEventCompleted, id)) // frees the budget by hand below
		c := h.claim(pod)
		if c.State.Live() {
			h.record(job(fleet.JobEventCompleted, 10_000+id, by(c.RunnerName)))
		}
	}
	t.Logf("granted %d, busy %d", granted, busy)
	require.Equal(t, 30, granted+busy)
}

// EXCL-5: a retired or spent pod is never served, a claimed one never retired, a deleting one never claimed.
func TestPoll_EXCL5_RetiredSpentAndDeletingPodsAreNeverServed(t *testing.T) {
	h := newHarness(t)
	d := h.replica()

	retired := h.pod("linux")
	answers, err := d.Retire(t.Context(), []dispatch.Pod{retired})
	require.NoError(t, err)
	require.Equal(t, runnerapi.Granted, answers[0].Verdict)

	deleting := h.pod("linux")
	deleting.Deleting = true
	h.cluster.PutPod(deleting)

	h.queue(1)
	for _, pod := range []dispatch.Pod{retired, deleting} {
		answer, err := d.Poll(await.Context(t), pod, 0)
		require.NoError(t, err)
		require.Equal(t, dispatch.ReplyGone, answer.Reply)
	}
	require.Equal(t, fleet.JobQueued, h.jobState(1))

	spent := h.pod("linux")
	runner := h.started(d, spent, 1).JIT.Name
	answers, err = d.Retire(t.Context(), []dispatch.Pod{spent})
	require.NoError(t, err)
	require.Equal(t, runnerapi.Busy, answers[0].Verdict, "a claimed pod is never retired")
	h.record(job(fleet.JobEventCompleted, 1, by(runner)))
	h.queue(2)
	answer, err := d.Poll(await.Context(t), spent, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, answer.Reply)
	answers, err = d.Retire(t.Context(), []dispatch.Pod{spent})
	require.NoError(t, err)
	require.Equal(t, runnerapi.Granted, answers[0].Verdict)
	require.Equal(t, fleet.JobQueued, h.jobState(2))
}

// EXCL-5: a poll that waits while its pod is retired, or begins to be deleted, is answered at once.
func TestPoll_EXCL5_WaitingPollOfARetiredPodIsSentAway(t *testing.T) {
	h := newHarness(t)
	here, there := h.replica(), h.replica()
	pod, deleting := h.pod("linux"), h.pod("linux")
	waiting, waitingToo := h.poll(t.Context(), here, pod), h.poll(t.Context(), here, deleting)
	h.eventually("both polls wait", func() bool { return h.timers.pendingOf(runnerapi.PollHold) == 2 })
	_, err := there.Retire(t.Context(), []dispatch.Pod{pod})
	require.NoError(t, err)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyGone, got.answer.Reply)
	deleting.Deleting = true
	h.cluster.PutPod(deleting)
	here.PodChanged(deleting)
	got = await.Receive(t, waitingToo, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyGone, got.answer.Reply)
}

// CLAIM-7: a lost answer is given again, with a fresh registration, and costs neither job nor pod.
func TestPoll_CLAIM7_LostAnswerIsServedAgain(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	lost := h.served(d, pod)
	again := h.served(d, pod)
	require.NotEqual(t, lost.JIT.Name, again.JIT.Name)
	require.Greater(t, again.Generation, lost.Generation)
	require.Equal(t, []string{again.JIT.Name}, h.forge.Alive(), "the first registration is removed before the second is minted")
	require.Equal(t, int64(1), h.claim(pod).JobID)
	won, err := d.Acknowledge(t.Context(), pod, again.Generation)
	require.NoError(t, err)
	require.True(t, won)
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, answer.Reply, "single shot: after the acknowledgement nothing more")
}

// CLAIM-7: when the first configuration did arrive and runs, the removal's 422 proves it: no second mint.
func TestPoll_CLAIM7_ReMintStopsWhenTheFirstRegistrationRuns(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	first := h.served(d, pod)
	h.forge.Start(first.JIT.Name, 0)
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, answer.Reply)
	require.Equal(t, 1, h.forge.Mints())
	require.True(t, h.claim(pod).Acknowledged)
}

// CLAIM-8: a mint that GitHub definitely refused gives the healthy pod back to the warm pool and the job to the queue.
func TestPoll_CLAIM8_RefusedMintReturnsThePodAndTheJob(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrRejected })
	h.queue(1)
	pod := h.pod("linux")
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyEmpty, answer.Reply)
	require.Equal(t, fleet.ClaimNone, h.claim(pod).State)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	require.Empty(t, h.cluster.Stamped())

	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = nil })
	// CLAIM-19: only that job waits; when that ends the same pod serves it.
	c.pass(time.Minute)
	_, err = d.RetryRefused(t.Context())
	require.NoError(t, err)
	h.served(d, pod)
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// CLAIM-10: names are unique per mint, at most 64 characters, and lead back to the pod.
func TestRunnerName_CLAIM10_UniquePerMintAndShort(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	names := map[string]bool{}
	for range 5 {
		name := h.served(d, pod).JIT.Name
		require.False(t, names[name], "a name came twice")
		require.LessOrEqual(t, len(name), 64)
		uid, ours := runnerpod.PodUID(name)
		require.True(t, ours)
		require.Equal(t, pod.UID, uid)
		names[name] = true
	}
}

// CLAIM-15: an actor whose claim was taken over while it was asking GitHub neither writes nor answers.
func TestMint_CLAIM15_StaleMinterIsVoid(t *testing.T) {
	h := newHarness(t)
	slow, release := make(chan struct{}), make(chan struct{})
	var mints atomic.Int64
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.OnMint = func(string) error {
			if mints.Add(1) == 1 {
				close(slow)
				await.OrEnd(t, release)
			}
			return nil
		}
	})
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	stale := h.poll(t.Context(), d, pod)
	await.Receive(t, slow, "the mint begins")
	// Its lease ends (a minter that hangs), and another replica takes the claim over.
	before := h.claim(pod)
	require.NoError(t, h.store.EndLease(t.Context(), pod.UID, before.Generation))
	winner := h.served(h.replica(), pod)
	close(release)
	got := await.Receive(t, stale, "the poll is answered")
	require.NoError(t, got.err)
	require.NotEqual(t, dispatch.ReplyServe, got.answer.Reply, "the stale answer must not be given")
	c := h.claim(pod)
	require.Equal(t, winner.Generation, c.Generation)
	require.Equal(t, winner.JIT.Name, c.RunnerName)
	require.Equal(t, []string{winner.JIT.Name}, h.forge.Alive(), "the stale registration is removed")
	won, err := d.Acknowledge(t.Context(), pod, before.Generation)
	require.NoError(t, err)
	require.False(t, won, "a stale acknowledgement is void")
}

// CLAIM-16: a server that dies between claim and mint burns no pod: the next poll, anywhere, takes the claim over.
func TestPoll_CLAIM16_ClaimOfADeadServerIsTakenOver(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	result, err := h.store.ClaimBatch(t.Context(), h.batch(pod)) // a replica claims, and dies
	require.NoError(t, err)
	require.Len(t, result.Claims, 1)
	// Its lease has run out by the replica's clock.
	d := h.replica(func(o *dispatch.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Hour) }
	})
	answer := h.served(d, pod)
	require.Equal(t, answer.Generation, h.claim(pod).Generation)
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// CLAIM-16: a mint that timed out may have taken effect; it is found by its name, removed, and minted again.
func TestPoll_CLAIM16_AmbiguousMintIsFoundByNameAndRemoved(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	var once sync.Once
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.OnMint = func(string) (err error) {
			once.Do(func() { err = fleet.ErrUncertain }) // it took effect, the answer was lost
			return err
		}
	})
	h.queue(1)
	pod := h.pod("linux")
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyRetry, answer.Reply)
	ghosts := h.forge.Alive()
	require.Len(t, ghosts, 1)

	later := h.replica() // the account's back-off is a replica's own; another serves at once
	served := h.served(later, pod)
	require.Equal(t, ghosts, h.forge.Removed())
	require.Equal(t, []string{served.JIT.Name}, h.forge.Alive())
	require.Equal(t, fleet.JobMinted, h.jobState(1))
}

// EXCL-6: while GitHub cannot be read, a registration that may live keeps the claim: no second mint.
func TestPoll_EXCL6_TakeOverNeedsProofThatTheFirstRegistrationIsGone(t *testing.T) {
	for name, answer := range map[string]error{"404": fleet.ErrNotFound, "403": fleet.ErrForbidden, "5xx": fleet.ErrUncertain} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			h.queue(1)
			pod := h.pod("linux")
			h.served(d, pod)
			h.forge.Set(func(g *dispatchtest.GitHub) { g.RemoveErr = answer; g.Unread = fleet.ErrForbidden })
			got, err := d.Poll(await.Context(t), pod, 0)
			require.NoError(t, err)
			require.Equal(t, dispatch.ReplyRetry, got.Reply)
			require.Equal(t, 1, h.forge.Mints())
			require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
		})
	}
}

func (h *harness) batch(pods ...dispatch.Pod) dispatch.Batch {
	pool, _ := h.cluster.Pool(pods[0].Pool)
	b := dispatch.Batch{
		Pool: pool, LabelKeys: []string{dispatch.LabelKey(pool.Labels)}, Now: time.Now(), Lease: time.Minute,
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {}, Excluded: []int64{},
	}
	for _, pod := range pods {
		b.Polls = append(b.Polls, dispatch.Poll{Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID})
	}
	return b
}

func (ts *timers) pendingOf(d time.Duration) int {
	return ts.count(func(other time.Duration) bool { return other == d })
}

func (ts *timers) count(which func(time.Duration) bool) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.pending {
		if which(t.d) {
			n++
		}
	}
	return n
}

func (ts *timers) fireAll(which func(time.Duration) bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	left := ts.pending[:0]
	for _, t := range ts.pending {
		if which(t.d) {
			t.ch <- time.Now()
		} else {
			left = append(left, t)
		}
	}
	ts.pending = left
}
