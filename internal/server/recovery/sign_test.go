package recovery_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// lagging is a pod whose runner was minted for one job and has been given another, while GitHub's data lags in every
// reported way: in_progress does not come, the runner is shown idle, and its removal is not refused.
type lagging struct {
	*world
	pod           recovery.Pod
	answer        dispatch.Answer
	minted, works int64
	release       func()
	ended         <-chan error
}

func newLagging(t *testing.T, options ...option) *lagging {
	t.Helper()
	w := newWorld(t, options...)
	w.losing("in_progress")
	for _, f := range []standin.Fault{
		{Kind: standin.FaultBusyHidden, Delay: standin.Duration(24 * time.Hour)}, {Kind: standin.FaultRemoveBusy},
	} {
		_, err := w.gh.Admin.AddFault(t.Context(), f)
		require.NoError(t, err)
	}
	l := &lagging{world: w}
	l.minted, _ = w.submit()
	l.pod = w.pod()
	l.answer = w.delivered(l.pod)
	l.works, l.release = w.submit()
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: standin.FaultAssignDifferent})
	require.NoError(t, err)
	_, l.ended = w.runner(l.answer)
	w.eventually("GitHub gives the runner the other job", func() bool {
		job, err := w.gh.Admin.Job(t.Context(), l.works)
		return err == nil && job.Status == "in_progress" && job.RunnerName == l.answer.JIT.Name
	})
	w.advance(patience + time.Second)
	return l
}

// unharmed: the runner is registered, its pod is claimed, and the job succeeds; then the claim ends.
func (l *lagging) unharmed() {
	l.t.Helper()
	require.Equal(l.t, fleet.ClaimMinted, l.claim(l.pod).State)
	require.Equal(l.t, 1, l.runnersAtGitHub())
	l.finishes()
}

func (l *lagging) finishes() {
	l.t.Helper()
	require.NotContains(l.t, l.removable(), l.pod.UID)
	l.release()
	require.NoError(l.t, await.Receive(l.t, l.ended, "the runner exits"))
	l.eventually("its job ends well", func() bool {
		job, err := l.gh.Admin.Job(l.t.Context(), l.works)
		return err == nil && job.Conclusion == "success" && job.Acquisitions == 1
	})
	l.eventually("and frees the claim", func() bool { return l.claim(l.pod).State == fleet.ClaimSpent })
}

// EXCL-6, RECV-3: the pod shows that a job has started. Nothing that GitHub says of an idle runner outweighs that, however
// often it is asked; it is counted, and said.
func TestPass_EXCL6_RECV3_ARunnerThatGitHubShowsIdleKeepsItsJob(t *testing.T) {
	l := newLagging(t)
	l.world.works(l.pod)
	for range 5 {
		l.advance(patience)
		require.Empty(t, l.pass())
	}
	require.Equal(t, 5, l.skipped()["disagree"])
	require.Contains(t, l.log.String(), "a job has started in it, which GitHub has not reported yet")
	l.unharmed()
}

// EXCL-6: the sign comes after the pods were listed. The pod is read once more, past every cache, before anything is done.
func TestPass_EXCL6_ThePodIsReadAgainBeforeAnythingIsDone(t *testing.T) {
	l := newLagging(t)
	l.cluster.onList = func() { l.cluster.onList = nil; l.world.works(l.pod) }
	require.Empty(t, l.pass())
	l.unharmed()
}

// EXCL-6, EXCL-3: a pod whose sign cannot be read is left as it is.
func TestPass_EXCL6_APodThatCannotBeReadIsLeft(t *testing.T) {
	l := newLagging(t)
	l.cluster.onList = func() {
		l.cluster.onList = nil
		l.cluster.locked(func() { l.cluster.listErr = errAPIServer })
	}
	require.Empty(t, l.pass())
	require.Equal(t, 1, l.skipped()["failed"])
	l.cluster.locked(func() { l.cluster.listErr = nil })
	l.cluster.change(l.pod.UID, func(p *recovery.Pod) { p.Runner = recovery.Starting }) // it was never probed
	require.Empty(t, l.pass())
	require.Equal(t, 1, l.skipped()["disagree"])
	l.unharmed()
}

// EXCL-6: GitHub has assigned the job a moment ago, and still removes the registration. The pod shows its sign only after that: its claim
// has waited for it, and neither claim nor pod is removed.
func TestPass_EXCL6_ARemovalThatRacesWithAnAssignmentCostsNoPod(t *testing.T) {
	l := newLagging(t)
	require.Equal(t, map[string]int{"idle_runner": 1}, l.pass())
	require.Zero(t, l.runnersAtGitHub(), "GitHub's 422 is no lock")
	require.Equal(t, fleet.ClaimMinted, l.claim(l.pod).State)
	require.Empty(t, l.pass())
	l.world.works(l.pod)
	for range 5 {
		l.advance(patience)
		require.Empty(t, l.pass())
	}
	require.Equal(t, fleet.ClaimMinted, l.claim(l.pod).State)
	l.finishes()
}

// EXCL-4: the same for a pod without a claim.
func TestPass_EXCL4_AnUnclaimedPodThatShowsAJobIsNotRetired(t *testing.T) {
	w := newWorld(t)
	_, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	w.losing("in_progress", "completed")
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: standin.FaultBusyHidden, Delay: standin.Duration(24 * time.Hour)})
	require.NoError(t, err)
	_, err = w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: standin.FaultRemoveBusy})
	require.NoError(t, err)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_claims`)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_registrations`)
	w.works(pod)
	w.pass() // it is noticed, and its job is queued again
	w.advance(patience + time.Second)
	require.Zero(t, w.pass()["orphaned_labelled_pod"])
	require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
	require.Equal(t, 1, w.runnersAtGitHub())
	require.Equal(t, 1, w.skipped()["disagree"])
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
}

// RECV-5: a job can keep its own pod by its sign, and no longer than GitHub has its runner: a runner that GitHub no longer lists has no
// job, whatever its pod shows.
func TestPass_RECV5_ASignAloneHoldsNothingForEver(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	w.works(pod)
	w.advance(patience + time.Second)
	require.Empty(t, w.pass(), "offline, for all that GitHub says")
	require.Equal(t, 1, w.runnersAtGitHub())
	registrations, err := w.store.Registrations(t.Context(), pod.UID, answer.Generation+1)
	require.NoError(t, err)
	require.Len(t, registrations, 1)
	require.NoError(t, w.forge.RemoveRunner(t.Context(), 101, registrations[0].Scope, registrations[0].RunnerID))
	w.advance(patience) // it is not asked about at every pass
	require.Equal(t, map[string]int{"agent_never_registered": 1}, w.pass())
	require.Equal(t, fleet.ClaimSpent, w.claim(pod).State)
	require.Equal(t, fleet.JobQueued, w.jobState(job))
}
