package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// What GitHub says of a job may arrive when its runner's pod has ended and is forgotten, as after an outage of webhooks. The job is counted where it
// ran all the same: usage is what bills are made of.
func TestRecord_AJobThatIsHeardOfAfterItsPodIsCounted(t *testing.T) {
	for name, kinds := range map[string][]fleet.JobEvent{
		"both":           {fleet.JobEventStarted, fleet.JobEventCompleted},
		"the end alone":  {fleet.JobEventCompleted},
		"the end, first": {fleet.JobEventCompleted, fleet.JobEventStarted},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			h.queue(1)
			pod := h.pod("linux")
			answer := h.served(d, pod)
			won, err := d.Acknowledge(t.Context(), pod, answer.Generation)
			require.NoError(t, err)
			require.True(t, won)
			ending, err := d.EndClaim(t.Context(), h.claim(pod), false, time.Time{})
			require.NoError(t, err)
			require.Equal(t, dispatch.EndedSpent, ending)
			require.NoError(t, h.store.PodStopped(t.Context(), pod.UID, time.Now(), nil))
			forgotten, err := h.store.ForgetPod(t.Context(), pod.UID)
			require.NoError(t, err)
			require.True(t, forgotten)

			for _, kind := range kinds {
				h.record(job(kind, 1, by(answer.JIT.Name), func(ev *dispatch.JobEvent) { ev.StartedAt = time.Now() }))
			}
			require.Equal(t, fleet.JobCompleted, h.jobState(1))
			require.EqualValues(t, 1, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_sessions WHERE executed_job_id = 1 AND job_started_at IS NOT NULL AND job_ended_at IS NOT NULL`))
		})
	}
}
