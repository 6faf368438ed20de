package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// A pool that was paused hands out no job, and the one that runs on it is left alone; resumed, it hands out what waited.
func TestPaused_HandsOutNothingAndLeavesWhatRuns(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	busy, idle := h.pod("linux"), h.pod("linux")
	h.queue(1)
	h.started(d, busy, 1)
	before := h.claim(busy)

	pool, ok := h.cluster.Pool(dispatch.PoolRef{Namespace: "runners", Name: "linux"})
	require.True(t, ok)
	pool.Paused = true
	h.cluster.PutPool(pool)
	d.PoolsChanged()
	h.queue(2)
	answers := h.poll(t.Context(), d, idle)
	require.Never(t, func() bool { return h.claim(idle).State != fleet.ClaimNone }, 400*time.Millisecond, 20*time.Millisecond)
	require.Equal(t, fleet.JobQueued, h.jobState(2))
	require.Equal(t, fleet.JobExecuting, h.jobState(1))
	require.Equal(t, before, h.claim(busy))

	pool.Paused = false
	h.cluster.PutPool(pool)
	d.PoolsChanged()
	select {
	case got := <-answers:
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	case <-time.After(20 * time.Second):
		t.Fatal("the job that waited is not handed out")
	}
}
