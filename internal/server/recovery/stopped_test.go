package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// stops has the API server show that the pod is being deleted.
func (w *world) stops(pod recovery.Pod) {
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Deleting = true })
}

// EXCL-8: a pod is stopped while its runner waits for the job that was claimed for it. Its registration is removed at once,
// so that the runner exits; its job is queued again when it has, and another runner does it.
func TestCheckPod_EXCL8_AStoppedPodsJobGoesToAnother(t *testing.T) {
	w := newWorld(t)
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	require.Empty(t, w.check(pod), "it may still start")
	w.stops(pod)
	require.Equal(t, map[string]int{"stopped_pod": 1}, w.check(pod))
	require.Zero(t, w.runnersAtGitHub())
	require.True(t, w.claim(pod).State.Live(), "a job may have started that was not reported")
	require.Empty(t, w.check(pod), "once is enough")
	_, ended := w.runner(answer)
	require.Error(t, await.Receive(t, ended, "a runner that is not registered ends by itself"))
	w.terminal(pod)
	require.Equal(t, map[string]int{"orphaned_runner": 1}, w.check(pod))
	require.Equal(t, fleet.JobQueued, w.jobState(job))
	next := w.pod()
	_, ended = w.runner(w.delivered(next))
	release()
	require.NoError(t, await.Receive(t, ended, "another one does it"))
}

// EXCL-8: GitHub has given the runner its job already, and nothing in the pod shows it yet. GitHub refuses to remove it,
// and the job continues.
func TestCheckPod_EXCL8_AStoppedPodKeepsTheJobThatItWasGiven(t *testing.T) {
	w := newWorld(t)
	w.losing("in_progress")
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	w.stops(pod)
	w.check(pod)
	require.Equal(t, 1, w.runnersAtGitHub())
	require.True(t, w.claim(pod).State.Live())
	require.NotEqual(t, fleet.JobQueued, w.jobState(job))
	release()
	require.NoError(t, await.Receive(t, ended, "its job ends well"))
}

// EXCL-8: a pass finds what no event reported.
func TestPass_EXCL8_AStoppedPodIsSeen(t *testing.T) {
	w := newWorld(t)
	w.submit()
	pod := w.pod()
	w.delivered(pod)
	require.Empty(t, w.pass())
	w.stops(pod)
	require.Equal(t, map[string]int{"stopped_pod": 1}, w.pass())
	require.Zero(t, w.runnersAtGitHub())
}

// EXCL-1, EXCL-8: the database fails over to a copy that lacks the last commits, too few to be noticed (CLAIM-17). The row of a removal that was granted is
// among them: the pod polls, is claimed and gets its configuration, while the controller's delete is under way. The deletion shows, the
// registration is removed, and the job goes to another pod.
func TestCheckPod_EXCL1_EXCL8_AGrantThatAFailoverLostCostsNoJob(t *testing.T) {
	for _, when := range []string{"before it polls", "before its configuration arrives", "after its configuration has arrived"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t)
			pod := w.pod()
			answers, err := w.d.Retire(t.Context(), []dispatch.Pod{pod.Pod})
			require.NoError(t, err)
			require.Equal(t, runnerapi.Granted, answers[0].Verdict)
			ledgertest.Exec(t, w.url, `DELETE FROM runner_claims WHERE pod_uid = $1`, pod.UID) // the failover
			job, release := w.submit()

			var answer dispatch.Answer
			switch when {
			case "before it polls":
				w.stops(pod)
				got, err := w.d.Poll(await.Context(t), w.cluster.get(pod.UID).Pod, 0)
				require.NoError(t, err)
				require.Equal(t, dispatch.ReplyGone, got.Reply, "EXCL-5")
				require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
			case "before its configuration arrives": // the answer is on its way, and the pod's poller stops
				w.served(pod)
				w.stops(pod)
				require.Equal(t, map[string]int{"stopped_pod": 1}, w.check(pod))
			default:
				answer = w.delivered(pod)
				w.stops(pod) // the delete's preconditions hold: nothing of the pod has changed
				require.Equal(t, map[string]int{"stopped_pod": 1}, w.check(pod))
				_, ended := w.runner(answer)
				require.Error(t, await.Receive(t, ended, "a runner that is not registered ends by itself"))
			}
			require.Zero(t, w.runnersAtGitHub())
			w.terminal(pod)
			w.check(pod)
			require.Equal(t, fleet.JobQueued, w.jobState(job))
			_, ended := w.runner(w.delivered(w.pod()))
			release()
			require.NoError(t, await.Receive(t, ended, "another pod does the job"))
		})
	}
}
