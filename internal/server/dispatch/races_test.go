package dispatch_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// ledger is the real one with gates before or after a step.
type ledger struct {
	dispatch.Store
	labelSets func()
	claimed   func(dispatch.BatchResult)
	looked    func(dispatch.Claim)
}

func (l *ledger) Claim(ctx context.Context, podUID string) (dispatch.Claim, error) {
	claim, err := l.Store.Claim(ctx, podUID)
	if l.looked != nil {
		l.looked(claim)
	}
	return claim, err
}

func (l *ledger) LabelSetsAmong(ctx context.Context, keys []string) ([]string, error) {
	found, err := l.Store.LabelSetsAmong(ctx, keys)
	if l.labelSets != nil {
		l.labelSets()
	}
	return found, err
}

func (l *ledger) ClaimBatch(ctx context.Context, b dispatch.Batch) (dispatch.BatchResult, error) {
	result, err := l.Store.ClaimBatch(ctx, b)
	if l.claimed != nil && len(result.Claims) > 0 {
		l.claimed(result)
	}
	return result, err
}

func on(l *ledger) func(*dispatch.Options) {
	return func(o *dispatch.Options) { o.Store = l }
}

func (h *harness) waiting(n int) {
	h.t.Helper()
	h.eventually("polls wait", func() bool { return h.timers.pendingOf(25*time.Second) >= n })
}

// A pool that reads the routing while another request reads the label sets again must not go to sleep over
// the old ones.
func TestRouting_LookWhileLabelSetsAreReadIsNotLost(t *testing.T) {
	h := newHarness(t)
	reading, goOn := make(chan struct{}, 8), make(chan struct{})
	gate := false
	var mu sync.Mutex
	l := &ledger{Store: h.store, labelSets: func() {
		mu.Lock()
		gated := gate
		gate = false
		mu.Unlock()
		if gated {
			reading <- struct{}{}
			await.OrEnd(t, goOn)
		}
	}}
	d := h.replica(on(l))
	h.queue(1)
	h.started(d, h.pod("linux"), 1) // label sets have been read once
	h.poll(t.Context(), d, h.pod("linux"))
	h.waiting(2)
	mu.Lock()
	gate = true
	mu.Unlock()
	h.cluster.PutPool(linuxPool("gpu"))
	d.PoolsChanged() // the one matcher begins to read
	await.Receive(t, reading, "label sets are read")
	h.record(job(fleet.JobEventQueued, 2, labelled("gpu")))
	waiting := h.poll(t.Context(), d, h.pod("gpu"))
	h.waiting(3)
	for range 20 {
		h.jobState(2) // the other reads concurrently
	}
	close(goOn)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

// A notification that was lost while the connection was down costs nothing once it is restored, also when it named
// a label set that was never seen before.
func TestListen_LabelSetsAreReadAgainAfterAReconnection(t *testing.T) {
	h := newHarness(t)
	d, err := dispatch.New(dispatch.Options{Store: h.store, Forge: h.forge, Cluster: h.cluster, After: h.timers.after})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); await.Return(t, wg.Wait, "the replica stops") })
	wg.Go(func() { _ = d.Run(ctx) })
	first := h.poll(t.Context(), d, h.pod("linux"))
	d.WorkArrived("")
	h.queue(1)
	d.WorkArrived(dispatch.LabelKey([]string{"linux"}))
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, first, "the poll is answered").answer.Reply)

	h.cluster.PutPool(linuxPool("gpu"))
	d.PoolsChanged()
	h.queue(2)
	d.WorkArrived("")
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, h.poll(t.Context(), d, h.pod("linux")), "the poll is answered").answer.Reply) // routed again
	h.record(job(fleet.JobEventQueued, 3, labelled("gpu")))                                                                              // its notification is lost
	waiting := h.poll(t.Context(), d, h.pod("gpu"))
	h.waiting(3)
	wg.Go(func() { postgres.Listen(ctx, h.url, d, slog.New(slog.DiscardHandler)) })
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

// CLAIM-1, CLAIM-9: GitHub may give a job that started to another runner of ours. The event is not refused forever,
// and neither runner loses its protection.
func TestRecordJob_CLAIM9_StartedJobThatMovesToAnotherRunner(t *testing.T) {
	for _, kind := range []fleet.JobEvent{fleet.JobEventStarted, fleet.JobEventCompleted} {
		t.Run(string(kind), func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			h.queue(1, 2)
			a, b := h.pod("linux"), h.pod("linux")
			h.started(d, a, 1)
			second := h.served(d, b)
			h.record(job(kind, 1, by(second.JIT.Name)))
			require.Equal(t, fleet.ClaimExecuting, h.claim(a).State)
			require.Zero(t, h.claim(a).JobID)
			if kind == fleet.JobEventStarted {
				require.Equal(t, fleet.ClaimExecuting, h.claim(b).State)
				h.record(job(fleet.JobEventCompleted, 1, by(second.JIT.Name)))
			}
			require.Equal(t, fleet.ClaimSpent, h.claim(b).State)
			require.Equal(t, fleet.JobQueued, h.jobState(2), "what b was minted for is dispatched again")
		})
	}
}

// CLAIM-13: a job that moves to a runner without a live claim has that runner confirmed, though it ran before.
func TestRecordJob_CLAIM13_StartedJobThatMovesToASpentRunner(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	h.started(d, h.pod("linux"), 1)
	pod := h.pod("linux")
	ghost := h.ghost(pod)
	h.forge.Start(ghost, 0)
	h.record(job(fleet.JobEventStarted, 1, by(ghost)))
	h.eventually("adopted", func() bool { return h.claim(pod).State == fleet.ClaimExecuting })
}

// EXCL-5: the waiting poll of a deleted pod is not matched again: a job given to it would be lost.
func TestPoll_EXCL5_PodThatWentWhileItsPollWaitedGetsNoJob(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pod := h.pod("linux")
	waiting := h.poll(t.Context(), d, pod)
	h.waiting(1)
	h.cluster.DropPod(pod.UID)
	d.PodGone(pod)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyRetry, got.answer.Reply)
	h.queue(1)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
}

// EXCL-5, CLAIM-8: a pod whose deletion shows between its poll and its claim is not minted for; job and pod are free.
func TestPoll_EXCL5_PodThatIsDeletedBetweenPollAndMint(t *testing.T) {
	h := newHarness(t)
	pod := h.pod("linux")
	l := &ledger{Store: h.store, claimed: func(dispatch.BatchResult) {
		gone := pod
		gone.Deleting = true
		h.cluster.PutPod(gone)
	}}
	d := h.replica(on(l))
	h.queue(1)
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.NotEqual(t, dispatch.ReplyServe, answer.Reply)
	require.Zero(t, h.forge.Mints())
	require.Equal(t, fleet.ClaimNone, h.claim(pod).State)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	answer, err = d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, answer.Reply)
}

// CLAIM-8: a poller that hung up before its claim was minted gives the job back at once; another pod takes it.
func TestPoll_CLAIM8_HungUpBeforeTheMintGivesTheJobBack(t *testing.T) {
	h := newHarness(t)
	ctx, hangUp := context.WithCancel(t.Context())
	var once sync.Once
	d := h.replica(on(&ledger{Store: h.store, claimed: func(dispatch.BatchResult) { once.Do(hangUp) }}))
	pod := h.pod("linux")
	waiting := h.poll(ctx, d, pod)
	h.waiting(1)
	h.queue(1)
	await.Receive(t, waiting, "the poll is answered")
	require.Equal(t, fleet.ClaimNone, h.claim(pod).State)
	h.served(d, h.pod("linux"))
	require.Equal(t, fleet.JobMinted, h.jobState(1))
	require.Equal(t, 1, h.forge.Mints())
}

// CLAIM-7: a request whose connection is dead, waiting at another replica, does not take over what the pod's later
// request was just given: that would remove the registration that the pod is about to use.
func TestPoll_CLAIM7_ForgottenRequestTakesNothingOver(t *testing.T) {
	h := newHarness(t)
	looked := make(chan struct{}, 8)
	d := h.replica(on(&ledger{Store: h.store, looked: func(dispatch.Claim) { looked <- struct{}{} }}))
	pod := h.pod("linux")
	forgotten := h.poll(t.Context(), d, pod)
	await.Receive(t, looked, "the poll reads its row")
	b := h.batch(pod) // the pod's later request, at another replica, wins and is answered
	h.record(job(fleet.JobEventQueued, 1, labelled("elsewhere")))
	b.LabelKeys = []string{dispatch.LabelKey([]string{"elsewhere"})}
	result, err := h.store.ClaimBatch(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, result.Claims, 1)
	minted, err := h.forge.Mint(t.Context(), 101, fleet.MintRequest{Name: result.Claims[0].RunnerName})
	require.NoError(t, err)
	won, err := h.store.RecordMint(t.Context(), pod.UID, result.Claims[0].Generation, minted.RunnerID, time.Now())
	require.NoError(t, err)
	require.True(t, won)

	h.queue(2) // a batch that meets the row
	got := await.Receive(t, forgotten, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyRetry, got.answer.Reply)
	require.Equal(t, []string{minted.Name}, h.forge.Alive())
	require.Equal(t, result.Claims[0].Generation, h.claim(pod).Generation)
	h.served(d, pod) // a new request does take it over
}

// CLAIM-7: a request that finds its pod's mint in progress is notified of its end, at its own replica and at another.
func TestPoll_CLAIM7_RequestThatAwaitsAMintHearsOfItsEnd(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		h := newHarness(t)
		minting, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h.forge.Set(func(g *dispatchtest.GitHub) {
			g.OnMint = func(string) error {
				once.Do(func() { close(minting); await.OrEnd(t, release) })
				return nil
			}
		})
		d := h.replica()
		h.queue(1)
		pod := h.pod("linux")
		ctx, hangUp := context.WithCancel(t.Context())
		first := h.poll(ctx, d, pod)
		await.Receive(t, minting, "the mint begins")
		hangUp()
		other := d
		if elsewhere {
			other = h.replica()
		}
		second := h.poll(t.Context(), other, pod)
		h.eventually("it waits for the mint", func() bool { return h.timers.pendingOf(2*time.Second) > 0 })
		close(release)
		await.Receive(t, first, "the poll is answered")
		if elsewhere {
			h.timers.fire(2 * time.Second)
		}
		got := await.Receive(t, second, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
		require.Equal(t, []string{got.answer.JIT.Name}, h.forge.Alive())
	}
}

// CLAIM-14: a burst beyond GitHub's rate limit waits in the queue, from the first batch on, and continues when it is
// renewed.
func TestPoll_CLAIM14_BurstBeyondTheBudgetWaitsInTheQueue(t *testing.T) {
	h := newHarness(t)
	reset := time.Now().Add(time.Hour)
	var mu sync.Mutex
	now := time.Now()
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.Rates[acme.InstallationID] = &fleet.RateState{Limit: 2, Remaining: 2, Reset: reset}
	})
	d := h.replica(func(o *dispatch.Options) {
		o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	closed := linuxPool("linux")
	closed.Terminating = true
	h.cluster.PutPool(closed)
	h.queue(1, 2, 3, 4, 5)
	answers := make(chan polled, 5)
	for range 5 {
		pod := h.pod("linux")
		go func() {
			answer, err := d.Poll(t.Context(), pod, 0)
			answers <- polled{answer, err}
		}()
	}
	h.waiting(5)
	h.cluster.PutPool(linuxPool("linux"))
	d.PoolsChanged()
	for range 2 {
		got := await.Receive(t, answers, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	}
	h.eventually("the pool waits for the reset", func() bool {
		return h.timers.count(func(d time.Duration) bool { return d > 50*time.Minute && d <= time.Hour }) > 0
	})
	require.Equal(t, 2, h.forge.Mints())
	states := map[fleet.JobState]int{}
	for id := int64(1); id <= 5; id++ {
		states[h.jobState(id)]++
	}
	require.Equal(t, map[fleet.JobState]int{fleet.JobMinted: 2, fleet.JobQueued: 3}, states)
	mu.Lock()
	now = reset.Add(time.Second)
	mu.Unlock()
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Rates[acme.InstallationID] = nil })
	h.eventually("the others are served", func() bool {
		h.timers.fireAll(func(d time.Duration) bool { return d > 50*time.Minute })
		return h.forge.Mints() == 5
	})
	for range 3 {
		got := await.Receive(t, answers, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	}
}

// CLAIM-11: however many mints one outage meets, it counts once, and while it lasts one mint at a time asks whether
// it is over: the account's jobs do not pin the pool.
func TestPoll_CLAIM11_OneOutageCountsOnce(t *testing.T) {
	h := newHarness(t)
	release := make(chan struct{})
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.OnMint = func(string) error { await.OrEnd(t, release); return fleet.ErrUncertain }
	})
	var mu sync.Mutex
	now := time.Now()
	d := h.replica(func(o *dispatch.Options) {
		o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	h.queue(1, 2, 3, 4, 5, 6)
	answers := make(chan polled, 6)
	poll := func() {
		pod := h.pod("linux")
		go func() {
			answer, err := d.Poll(t.Context(), pod, 0)
			answers <- polled{answer, err}
		}()
	}
	for range 6 {
		poll()
	}
	h.eventually("all are minting", func() bool { return h.forge.Mints() == 6 })
	close(release)
	for range 6 {
		got := await.Receive(t, answers, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyRetry, got.answer.Reply)
		require.Equal(t, time.Second, got.answer.RetryAfter, "one blip, one second")
	}
	// The back-off ends while GitHub still fails: one claim is tried, the other jobs wait in the queue.
	mu.Lock()
	now = now.Add(10 * time.Second)
	mu.Unlock()
	again := make(chan struct{})
	h.forge.Set(func(g *dispatchtest.GitHub) { g.OnMint = func(string) error { await.OrEnd(t, again); return nil } })
	for id := int64(7); id <= 12; id++ {
		h.queue(id)
		poll()
	}
	h.eventually("one mint asks", func() bool { return h.forge.Mints() == 7 })
	for range 20 {
		h.jobState(7)
	}
	require.Equal(t, 7, h.forge.Mints())
	close(again) // it succeeds: all others follow at once
	for range 6 {
		got := await.Receive(t, answers, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	}
}
