package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// stops has the API server show that the pod is being deleted.
func (w *world) stops(pod recovery.Pod) {
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Deleting = true })
}

// EXCL-8: a pod is stopped while its runner waits for the job that was claimed for it. Its registration is removed at once, so that the
// runner ends by itself; its job is queued again when it has, and another runner does it.
func TestCheckPod_EXCL8_AStoppedPodsJobGoesToAnother(t *testing.T) {
	w := newWorld(t)
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	require.Empty(t, w.check(pod), "it may still start")
	w.stops(pod)
	require.Equal(t, map[string]int{"stopped_pod": 1}, w.check(pod))
	require.Zero(t, w.runnersAtGitHub())
	require.True(t, w.claim(pod).State.Live(), "a job may have started that nobody has told of")
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

// EXCL-8: GitHub has given the runner its job already, and nothing in the pod shows it yet. GitHub refuses to remove it, and the job goes on.
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

// EXCL-8: a pass sees what nobody has told of.
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
