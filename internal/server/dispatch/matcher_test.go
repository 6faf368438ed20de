package dispatch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A pool that is deleted leaves no goroutine behind, and one that is made again under its name is served as
// before.
func TestMatcher_EndsWithItsPool(t *testing.T) {
	h := newHarness(t)
	h.cluster.PutPool(linuxPool("gone"))
	d := h.replica()
	ctx, cancel := context.WithCancel(t.Context())
	staying, leaving := h.poll(t.Context(), d, h.pod("linux")), h.poll(ctx, d, h.pod("gone"))
	h.eventually("both polls wait", func() bool { return d.WaitingPolls() == 2 })
	require.Equal(t, 2, d.Matchers())

	h.cluster.DropPool(linuxPool("gone").Ref())
	d.PoolsChanged()
	h.eventually("it has looked whether to end", func() bool { return h.cluster.Misses() >= 2 })
	require.Equal(t, 2, d.Matchers(), "a poll that waits is answered by its matcher")
	cancel()
	await.Receive(t, leaving, "the poll is answered")
	h.eventually("the matcher has ended", func() bool { return d.Matchers() == 1 })

	h.cluster.PutPool(linuxPool("gone"))
	d.PoolsChanged()
	_, err := h.store.RecordJob(t.Context(), h.delivery("workflow_job"), job("queued", 1, labelled("gone")))
	require.NoError(t, err)
	answer := h.served(d, h.pod("gone"))
	require.Equal(t, dispatch.ReplyServe, answer.Reply)

	h.queue(2)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, staying, "the poll is answered").answer.Reply)

	h.cluster.DropPool(linuxPool("gone").Ref())
	d.PoolsChanged()
	h.eventually("a matcher without polls ends when its pool is deleted", func() bool { return d.Matchers() == 1 })
}

// fruitless is a ledger of which no batch gets anything after it has taken the available mint slots: because another
// transaction holds all jobs, or with an error.
type fruitless struct {
	dispatch.Store
	account dispatch.Account
	err     error
	tries   atomic.Int64
}

func (f *fruitless) ClaimBatch(_ context.Context, b dispatch.Batch) (dispatch.BatchResult, error) {
	f.tries.Add(1)
	b.Return(f.account.ID, b.Reserve(f.account, 5))
	return dispatch.BatchResult{}, f.err
}

// A batch that fails is tried again after a pause, also where it gives back slots that others may wait for: other pools, whose
// batches fail too, and give back theirs.
func TestMatcher_PausesAfterABatchThatFailed(t *testing.T) {
	h := newHarness(t)
	h.cluster.PutPool(linuxPool("large"))
	h.forge.Rates[acme.InstallationID] = &fleet.RateState{Remaining: 2, Reset: time.Now().Add(time.Hour)}
	h.queue(1)
	_, err := h.store.RecordJob(t.Context(), h.delivery("workflow_job"), job("queued", 2, labelled("large")))
	require.NoError(t, err)
	l := &fruitless{Store: h.store, account: acme, err: errors.New("refused")}
	d := h.replica(func(o *dispatch.Options) { o.Store = l })
	h.poll(t.Context(), d, h.pod("linux"))
	h.poll(t.Context(), d, h.pod("large"))
	h.eventually("both have tried", func() bool { return l.tries.Load() > 1 && h.timers.pendingOf(time.Second) > 1 })
	require.Never(t, func() bool { return l.tries.Load() > 10 }, 300*time.Millisecond, 5*time.Millisecond, "it would not stop trying")
	tries := l.tries.Load()
	h.timers.fire(time.Second)
	h.eventually("it tries again after a second", func() bool { return l.tries.Load() > tries })
}

// A batch that finds no use for its slots, though it wanted more, does not look again for having given them back; other pools do, once.
func TestMatcher_DoesNotWakeItselfWithSlotsThatItCouldNotUse(t *testing.T) {
	h := newHarness(t)
	h.cluster.PutPool(linuxPool("large"))
	h.forge.Rates[acme.InstallationID] = &fleet.RateState{Remaining: 2, Reset: time.Now().Add(time.Hour)}
	h.queue(1)
	l := &fruitless{Store: h.store, account: acme}
	d := h.replica(func(o *dispatch.Options) { o.Store = l })
	h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("it has tried", func() bool { return l.tries.Load() > 0 })
	require.Never(t, func() bool { return l.tries.Load() > 10 }, 300*time.Millisecond, 5*time.Millisecond, "it would not stop looking")
}

// A request on a half-open connection, which a replica reads only after the pod's next request was served, takes nothing from it, at any
// replica (test/model: HalfOpen). A later one takes the claim over: the answer was lost.
func TestPoll_CLAIM7_AnEarlierRequestTakesNothingOver(t *testing.T) {
	h := newHarness(t)
	a, b := h.replica(), h.replica()
	pod := h.pod("linux")
	h.queue(1)
	served, err := a.Poll(await.Context(t), pod, 6)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyServe, served.Reply)
	for _, d := range []*dispatch.Dispatcher{a, b} {
		late, err := d.Poll(await.Context(t), pod, 5)
		require.NoError(t, err)
		require.Equal(t, dispatch.ReplyRetry, late.Reply)
	}
	require.Equal(t, served.Generation, h.claim(pod).Generation)
	require.Contains(t, h.forge.Alive(), served.JIT.Name, "what was delivered still stands")

	again, err := b.Poll(await.Context(t), pod, 8)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyServe, again.Reply)
	late, err := a.Poll(await.Context(t), pod, 7)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyRetry, late.Reply, "who took the claim over counts")

	unnumbered, err := a.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyServe, unnumbered.Reply, "an agent that numbers nothing works as before")
	won, err := a.Acknowledge(t.Context(), pod, unnumbered.Generation)
	require.NoError(t, err)
	require.True(t, won)
}

// An earlier request does not push a later one of its pod out of the queue either.
func TestPoll_CLAIM7_AnEarlierRequestWaitsForNoOther(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	pod := h.pod("linux")
	waiting := make(chan polled, 1)
	go func() {
		answer, err := d.Poll(t.Context(), pod, 6)
		waiting <- polled{answer, err}
	}()
	h.eventually("the later one waits", func() bool { return d.WaitingPolls() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	late, err := d.Poll(ctx, pod, 5)
	require.NoError(t, err, "it waits")
	require.Equal(t, dispatch.ReplyRetry, late.Reply)
	require.Equal(t, 1, d.WaitingPolls())
	h.queue(1)
	got := await.Receive(t, waiting, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
}

// slow is a ledger whose batches find no job, and do not return before the test lets them.
type slow struct {
	dispatch.Store
	begun, proceed chan struct{}
}

func (s *slow) ClaimBatch(ctx context.Context, _ dispatch.Batch) (dispatch.BatchResult, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	select {
	case <-s.proceed:
	case <-ctx.Done():
	}
	return dispatch.BatchResult{}, ctx.Err()
}

// A poll whose hold ends during a batch is answered after that batch, also if the pod's row has changed. It must not be held again:
// its timer has fired, so only the client would end it.
func TestPoll_EndsWithItsHoldDuringABatch(t *testing.T) {
	for name, change := range map[string]bool{"the row is unchanged": false, "the row changed": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.queue(1) // so that the pool serves a known label set
			s := &slow{Store: h.store, begun: make(chan struct{}, 1), proceed: make(chan struct{})}
			d := h.replica(func(o *dispatch.Options) { o.Store = s })
			pod := h.pod("linux")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			poll := h.poll(ctx, d, pod)
			select {
			case <-s.begun:
			case <-ctx.Done():
				require.Fail(t, "no batch began")
			}
			require.Equal(t, 1, h.timers.fire(runnerapi.PollHold))
			h.eventually("the poll has left", func() bool { return d.JoinedPolls() == 0 })
			if change {
				d.ClaimChanged(pod.UID)
			}
			close(s.proceed)
			got := await.Receive(t, poll, "the poll is answered") // its request times out
			require.NoError(t, got.err)
			require.Equal(t, dispatch.ReplyEmpty, got.answer.Reply)
		})
	}
}
