package dispatch_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// CLAIM-15, CLAIM-16: whatever an actor does with a generation that is not the row's is void, and a claim is taken
// over only when it is not being minted and its pod has nothing yet.
func TestStore_CLAIM15_CLAIM16_StaleActorsAreVoid(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	result, err := h.store.ClaimBatch(t.Context(), h.batch(pod))
	require.NoError(t, err)
	current := result.Claims[0]
	stale, next, now := current.Generation-1, current.Generation+1, time.Now()
	later := now.Add(45 * time.Second) // the lease is over
	refused := func(what string, ok bool, err error) {
		t.Helper()
		require.NoError(t, err, what)
		require.False(t, ok, what)
		c := h.claim(pod)
		require.Equal(t, current.Generation, c.Generation, what)
		require.Equal(t, current.RunnerName, c.RunnerName, what)
		require.Equal(t, current.State, c.State, what)
	}
	ok, err := h.store.TakeOver(t.Context(), pod.UID, stale, next, 0, later, later)
	refused("take-over of another generation", ok, err)
	ok, err = h.store.TakeOver(t.Context(), pod.UID, current.Generation, next, 0, later, now)
	refused("take-over while a replica is minting", ok, err)
	ok, err = h.store.Intend(t.Context(), pod.UID, stale, "bp-x-1", fleet.Scope{Owner: "acme"}, now)
	refused("a stale intent", ok, err)
	ok, err = h.store.RecordMint(t.Context(), pod.UID, stale, 7, now)
	refused("a stale mint", ok, err)
	require.NoError(t, h.store.EndLease(t.Context(), pod.UID, stale))
	require.False(t, h.claim(pod).LeaseUntil.IsZero(), "a stale actor ends no lease")

	ok, err = h.store.RecordMint(t.Context(), pod.UID, current.Generation, 7, now)
	require.NoError(t, err)
	require.True(t, ok)
	current.State = fleet.ClaimMinted
	ok, err = h.store.Acknowledge(t.Context(), pod.UID, stale, now)
	refused("a stale acknowledgement", ok, err)
	ok, err = h.store.Acknowledge(t.Context(), pod.UID, current.Generation, now)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = h.store.TakeOver(t.Context(), pod.UID, current.Generation, next, 0, later, later)
	refused("take-over of what the pod has", ok, err)
}

// CLAIM-16: a lease that a replica took by a clock that is ahead, and could not end, blocks neither the pod's next poll nor
// recovery; one that a working replica may hold does.
func TestTakeOver_CLAIM16_ALeaseOfAClockAheadBlocksNoPoll(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	batch, now := h.batch(pod), time.Now()
	batch.Lease = 5*time.Minute + 30*time.Second
	result, err := h.store.ClaimBatch(t.Context(), batch)
	require.NoError(t, err)
	claim := h.claim(pod)
	g := result.Claims[0].Generation
	require.Equal(t, dispatch.StepTakeOver, dispatch.Decide(dispatch.Pod{}, claim, 0, now))
	ok, err := h.store.TakeForRelease(t.Context(), pod.UID, g, g+1, now.Add(30*time.Second), now)
	require.NoError(t, err)
	require.True(t, ok, "recovery may have it")
	ok, err = h.store.TakeOver(t.Context(), pod.UID, g+1, g+2, 0, now.Add(30*time.Second), now)
	require.NoError(t, err)
	require.False(t, ok, "a replica is working on it")
	require.Equal(t, dispatch.StepAwait, dispatch.Decide(dispatch.Pod{}, h.claim(pod), 0, now))
	require.NoError(t, h.store.EndLease(t.Context(), pod.UID, g+1))
	ahead := now.Add(5 * time.Minute)
	ok, err = h.store.TakeOver(t.Context(), pod.UID, g+1, g+2, 0, ahead.Add(30*time.Second), ahead)
	require.NoError(t, err)
	require.True(t, ok, "the replica whose clock is ahead")
	ok, err = h.store.TakeOver(t.Context(), pod.UID, g+2, g+3, 0, now.Add(30*time.Second), now)
	require.NoError(t, err)
	require.True(t, ok, "and the pod's next poll elsewhere")
	d := h.replica()
	require.NoError(t, h.store.EndLease(t.Context(), pod.UID, g+3))
	h.served(d, pod)
}

// CLAIM-15: generations rise also where clocks lag.
func TestNextGeneration_CLAIM15_RisesWithALaggingClock(t *testing.T) {
	now := time.Now()
	ahead := now.Add(time.Hour).UnixMicro()
	require.Equal(t, ahead+1, dispatch.NextGeneration(ahead, now))
	require.Equal(t, now.UnixMicro(), dispatch.NextGeneration(0, now))
}

// CLAIM-15: a mint that takes effect only after the take-over searched for it is removed by its own requester.
func TestMint_CLAIM15_RegistrationThatComesTooLateIsRemoved(t *testing.T) {
	h := newHarness(t)
	slow, release := make(chan struct{}), make(chan struct{})
	var mints atomic.Int64
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.BeforeMint = func(string) {
			if mints.Add(1) == 1 {
				close(slow)
				await.OrEnd(t, release)
			}
		}
	})
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	stale := h.poll(t.Context(), d, pod)
	await.Receive(t, slow, "the mint begins")
	require.NoError(t, h.store.EndLease(t.Context(), pod.UID, h.claim(pod).Generation))
	winner := h.served(h.replica(), pod)
	close(release)
	got := await.Receive(t, stale, "the poll is answered")
	require.NoError(t, got.err)
	require.Equal(t, dispatch.ReplyRetry, got.answer.Reply)
	require.Equal(t, []string{winner.JIT.Name}, h.forge.Alive())
}

// CLAIM-15: a replica that takes a claim over, and then stands still past its lease, does not remove what its successor has
// minted and delivered since. Found by the model of the protocol (test/model).
func TestTakeOver_CLAIM15_LeavesWhatItsSuccessorHasMinted(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	_, err := h.store.ClaimBatch(t.Context(), h.batch(pod)) // a replica claims, and dies
	require.NoError(t, err)
	hours := func(n time.Duration) func(*dispatch.Options) {
		return func(o *dispatch.Options) { o.Now = func() time.Time { return time.Now().Add(n * time.Hour) } }
	}
	still := &standingStill{Store: h.store, reached: make(chan struct{}), release: make(chan struct{})}
	slow := h.replica(hours(1), func(o *dispatch.Options) { o.Store = still })
	stale := h.poll(t.Context(), slow, pod)
	await.Receive(t, still.reached, "the take-over begins")
	served := h.served(h.replica(hours(2)), pod) // the lease of the slow one has run out
	close(still.release)
	got := await.Receive(t, stale, "the poll is answered")
	require.NoError(t, got.err)
	require.NotEqual(t, dispatch.ReplyServe, got.answer.Reply)
	require.Equal(t, []string{served.JIT.Name}, h.forge.Alive(), "what was delivered is still good")
	require.Equal(t, served.Generation, h.claim(pod).Generation)
}
