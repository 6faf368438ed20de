package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// A pool serves many organizations. One that lacks the pool's runner group waits in that pool, and nothing else of it does.
func TestRunnerGroup_OneThatIsAbsentHoldsBackItsPoolAlone(t *testing.T) {
	h, c := newHarness(t), newClock()
	grouped := linuxPool("linux")
	grouped.RunnerGroup, grouped.RunnerGroupID = "builders", 0
	h.cluster.PutPool(grouped)
	h.cluster.PutPool(linuxPool("plain"))
	h.forge.Set(func(g *dispatchtest.GitHub) { g.NoGroups = true })
	d := h.replica(at(c))
	h.queue(1, 2)
	h.record(job(fleet.JobEventQueued, 3, func(ev *dispatch.JobEvent) { ev.Labels = []string{"plain"} }))
	pod := h.pod("linux")

	_, err := d.Poll(await.Context(t), pod, 0) // tries once, and gets no job
	require.NoError(t, err)
	require.Equal(t, "builders", h.forge.Asked().RunnerGroup)
	require.Equal(t, 1, h.forge.Mints())
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	refusal, lacking := d.PoolRefused(grouped.Ref(), acme.ID)
	require.True(t, lacking)
	require.Equal(t, "builders", refusal.Group)
	require.True(t, refusal.Until.After(c.now()))
	backoff, _ := d.Backoff(acme)
	require.Zero(t, backoff)
	h.knowsLabels(d)
	signals, err := d.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, blocked(runnerapi.BlockedGroup, 2), signals.Pools[0].Blocked)
	require.Zero(t, signals.Pools[0].Queued)
	require.Equal(t, 1, signals.Pools[1].Queued)

	waiting := h.poll(t.Context(), d, pod)
	h.eventually("it waits", func() bool { return d.WaitingPolls() == 1 })
	h.served(d, h.pod("plain"))
	require.Equal(t, 2, h.forge.Mints(), "it is not tried again at once")

	// An administrator makes the group, or the pool names another.
	h.forge.Set(func(g *dispatchtest.GitHub) { g.NoGroups = false })
	c.pass(time.Minute)
	_, lacking = d.PoolRefused(grouped.Ref(), acme.ID)
	require.False(t, lacking)
	h.queue(4)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, waiting, "the poll is answered").answer.Reply)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.NoGroups = true })
	_, err = d.Poll(await.Context(t), h.pod("linux"), 0)
	require.NoError(t, err)
	_, lacking = d.PoolRefused(grouped.Ref(), acme.ID)
	require.True(t, lacking)
	h.cluster.PutPool(linuxPool("linux"))
	_, lacking = d.PoolRefused(grouped.Ref(), acme.ID)
	require.False(t, lacking)
	h.served(d, h.pod("linux"))
}
