package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// TEN-4: a pod is charged to its account until it has stopped or is gone, whatever GitHub reports of its job; then the
// account's next job is claimed at once.
func TestCharge_TEN4_UntilThePodIsGone(t *testing.T) {
	for how, ends := range map[string]func(ctx context.Context, h *harness, d *dispatch.Dispatcher, pod dispatch.Pod) error{
		"stopped": func(ctx context.Context, _ *harness, d *dispatch.Dispatcher, pod dispatch.Pod) error {
			_, err := d.PodStopped(ctx, pod.UID, time.Now(), nil)
			return err
		},
		"gone": func(ctx context.Context, h *harness, _ *dispatch.Dispatcher, pod dispatch.Pod) error {
			_, err := h.store.ForgetPod(ctx, pod.UID)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			h := newHarness(t)
			require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 64_000, MemoryMB: 64_000, Jobs: 1}))
			d := h.replica()
			h.queue(1, 2, 3)
			for id := int64(1); id <= 2; id++ {
				pod := h.pod("linux")
				answer := h.started(d, pod, id)
				h.record(job(fleet.JobEventCompleted, id, by(answer.JIT.Name)))
				require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
				require.EqualValues(t, 1, h.account("acme").Budgets[0].Usage.Jobs, "its machine is in use")
				require.Empty(t, h.claims(linuxPool("linux"), 1), "its machine is in use")
				require.NoError(t, ends(t.Context(), h, d, pod))
				require.Zero(t, h.account("acme").Budgets[0].Usage.Jobs)
			}
			require.Equal(t, dispatch.ReplyServe, await.Receive(t, h.poll(t.Context(), d, h.pod("linux")), "the poll is answered").answer.Reply)
		})
	}
}

// TEN-4: a pod whose claim was released keeps its charge as well, and one that had stopped before its job's end is charged no longer than that.
func TestCharge_TEN4_WhicheverComesFirst(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 64_000, MemoryMB: 64_000, Jobs: 1}))
	d := h.replica()
	h.queue(1, 2)
	released := h.claims(linuxPool("linux"), 1)
	require.Len(t, released, 1)
	ended, err := h.store.Release(t.Context(), released[0].PodUID, released[0].Generation, "there never was a registration", time.Now())
	require.NoError(t, err)
	require.False(t, ended, "its registration may be there")
	require.NoError(t, h.store.RegistrationGone(t.Context(), released[0].RunnerName, time.Now()))
	ended, err = h.store.Release(t.Context(), released[0].PodUID, released[0].Generation, "its registration is gone", time.Now())
	require.NoError(t, err)
	require.True(t, ended)
	require.Empty(t, h.claims(linuxPool("linux"), 1), "its pod is there")
	_, err = h.store.ForgetPod(t.Context(), released[0].PodUID)
	require.NoError(t, err)

	pod := h.pod("linux")
	answer := h.started(d, pod, 1)
	_, err = d.PodStopped(t.Context(), pod.UID, time.Now(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.account("acme").Budgets[0].Usage.Jobs, "GitHub has not said that its job is over")
	h.record(job(fleet.JobEventCompleted, 1, by(answer.JIT.Name)))
	require.Zero(t, h.account("acme").Budgets[0].Usage.Jobs)
	require.Len(t, h.claims(linuxPool("linux"), 1), 1)
}
