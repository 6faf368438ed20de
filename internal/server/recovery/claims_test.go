package recovery_test

import (
	"context"
	"fmt"
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

// RECV-2: a claim that was minted for and never acknowledged ends once its time is over: its registration is removed first,
// its job is queued again, and another runner takes it.
func TestPass_RECV2_AStaleClaimIsReleased(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	w.served(pod)
	w.advance(patience - time.Second)
	require.Empty(t, w.pass(), "it may still start")
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
	w.advance(2 * time.Second)
	require.Equal(t, map[string]int{"stale_claim": 1}, w.pass())
	claim := w.claim(pod)
	require.Equal(t, fleet.ClaimSpent, claim.State)
	require.Equal(t, dispatch.ProofRegistrationsGone, claim.Proof, "the controller removes the pod on it")
	require.Zero(t, w.runnersAtGitHub(), "EXCL-6")
	require.Equal(t, fleet.JobQueued, w.jobState(job))
	require.Equal(t, 301, w.counted("bullpen_recovery_delay_seconds_sum")["stale_claim"], "RECV-9")
	require.Empty(t, w.pass(), "once is enough")
	next := w.pod()
	w.served(next)
	require.Equal(t, job, w.claim(next).JobID)
}

// CLAIM-8: a claim whose mint never happened is given back: the healthy pod stays warm and has another job.
func TestPass_RECV2_CLAIM8_NothingWasMintedAndThePodStaysWarm(t *testing.T) {
	w := newWorld(t)
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 500, Route: "generate-jitconfig"})
	require.NoError(t, err)
	job, _ := w.submit()
	pod := w.pod()
	answer, err := w.d.Poll(t.Context(), pod.Pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyRetry, answer.Reply)
	require.Equal(t, fleet.ClaimClaimed, w.claim(pod).State)
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"stale_claim": 1}, w.pass())
	require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
	require.Equal(t, fleet.JobQueued, w.jobState(job))
	require.NoError(t, w.gh.Admin.RemoveFault(t.Context(), 0))
	w.served(pod)
}

// RECV-1, RECV-2: a pod that has just stopped needs no patience: its end is the evidence, and GitHub says that its job
// waits. The same for one that was said to execute.
func TestCheckPod_RECV3_AnOrphanedRunnerIsReleasedAtOnce(t *testing.T) {
	for name, executing := range map[string]bool{"minted": false, "executing": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			job, _ := w.submit()
			pod := w.pod()
			answer := w.delivered(pod)
			if executing {
				w.startsByHand(job, answer.JIT.Name)
				require.Equal(t, fleet.JobExecuting, w.jobState(job))
			}
			require.Empty(t, w.check(pod), "it works, for all that is known")
			w.terminal(pod)
			require.Equal(t, map[string]int{"orphaned_runner": 1}, w.check(pod))
			require.Equal(t, fleet.ClaimSpent, w.claim(pod).State)
			require.Equal(t, fleet.JobQueued, w.jobState(job), "it never ran, by GitHub's word")
			require.Zero(t, w.runnersAtGitHub())
			next := w.pod()
			w.served(next)
			require.Equal(t, job, w.claim(next).JobID)
		})
	}
}

// startsByHand records an in_progress that GitHub never sent.
func (w *world) startsByHand(job int64, runner string) {
	w.t.Helper()
	_, err := w.store.RecordJob(w.t.Context(), dispatch.Delivery{GUID: runner, Event: "workflow_job", At: w.clock()}, dispatch.JobEvent{
		Kind: fleet.JobEventStarted, Account: w.account(), JobID: job, Repository: "acme/app", Labels: []string{"linux"}, RunnerName: runner,
	})
	require.NoError(w.t, err)
}

func (w *world) account() dispatch.Account {
	w.t.Helper()
	return dispatch.Account{
		ID: ledgertest.Int(w.t, w.url, `SELECT id FROM accounts`), Login: "acme", InstallationID: 101,
	}
}

// RECV-3: a claim that executes is never released on age alone, however long it takes: GitHub says that it works. It is not
// asked at every pass either.
func TestPass_RECV3_WhatWorksIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	w.eventually("it executes", func() bool { return w.claim(pod).State == fleet.ClaimExecuting })
	before := w.requests()
	for range 60 {
		w.advance(time.Minute)
		require.Empty(t, w.pass())
	}
	require.Equal(t, fleet.ClaimExecuting, w.claim(pod).State)
	asked := w.requests() - before
	require.Greater(t, asked, 2, "a completed that was lost is found some time")
	require.Less(t, asked, 20, "in an hour")
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.eventually("it completes", func() bool { return w.jobState(job) == fleet.JobCompleted })
}

func (w *world) requests() int {
	w.t.Helper()
	stats, err := w.gh.Admin.Stats(w.t.Context())
	require.NoError(w.t, err)
	return stats.Calls
}

// An agent that has its configuration and never registers is a leak, in any state of its containers (RECV-1).
func TestPass_RECV1_AnAgentThatNeverRegistersGoes(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	w.delivered(pod)
	w.advance(patience - time.Second)
	require.Empty(t, w.pass())
	w.advance(2 * time.Second)
	require.Equal(t, map[string]int{"agent_never_registered": 1}, w.pass())
	require.Zero(t, w.runnersAtGitHub())
	w.freed(pod)
	require.Equal(t, fleet.JobQueued, w.jobState(job))
}

// EXCL-6: the acknowledgement was lost and the poller has crashed, but the configuration has reached the runner: the claim is
// not stale, and GitHub's 422 keeps it.
func TestPass_EXCL6_ThePodsOwnSignComesFirst(t *testing.T) {
	w := newWorld(t)
	w.losing("in_progress")
	job, release := w.submit()
	pod := w.pod()
	answer := w.served(pod)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Poller, p.Runner = recovery.Failed, recovery.NotReady })
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 404, Route: "/actions/jobs/", Times: 1})
	require.NoError(t, err)
	w.advance(patience + time.Second)
	require.Empty(t, w.pass(), "a job that cannot be found proves nothing about a runner that is busy")
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
	require.Equal(t, 1, w.runnersAtGitHub())
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.eventually("it completes", func() bool { return w.jobState(job) == fleet.JobCompleted })
	require.Equal(t, fleet.ClaimSpent, w.claim(pod).State)
}

// The webhook that says that a job has ended is lost for good.
func TestCheckPod_RECV5_AnOrphanCompletedIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.losing("completed")
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	_, ended := w.runner(answer)
	w.eventually("it executes", func() bool { return w.claim(pod).State == fleet.ClaimExecuting })
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.terminal(pod)
	require.Equal(t, map[string]int{"orphan_completed": 1}, w.check(pod))
	require.Equal(t, fleet.JobCompleted, w.jobState(job))
	require.Equal(t, fleet.ClaimSpent, w.claim(pod).State)
	require.NotEmpty(t, w.claim(pod).Proof)
	require.EqualValues(t, 1, ledgertest.Int(t, w.url, `SELECT count(*) FROM runner_sessions WHERE job_ended_at IS NOT NULL`))
}

// RECV-5: the webhook that says that a job has begun is lost, and the other runner's claim idles.
func TestPass_RECV5_AnUnstartedExecutionIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.losing("in_progress")
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"unstarted_execution": 1}, w.pass())
	require.Equal(t, fleet.JobExecuting, w.jobState(job))
	require.Equal(t, fleet.ClaimExecuting, w.claim(pod).State)
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
}

// A surplus runner: its job was cancelled while it was queued. It idles, charged, until its time is over.
func TestPass_RECV5_AnIdleRunnerGoes(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	require.NoError(t, w.gh.Admin.CancelJob(t.Context(), job))
	w.eventually("it is cancelled", func() bool { return w.jobState(job) == fleet.JobCancelled })
	w.runner(answer)
	w.registered(answer.JIT.Name, idle)
	w.advance(patience - time.Second)
	require.Empty(t, w.pass())
	w.advance(2 * time.Second)
	require.Equal(t, map[string]int{"idle_runner": 1}, w.pass())
	require.Zero(t, w.runnersAtGitHub())
	w.freed(pod)
	require.Equal(t, fleet.JobCancelled, w.jobState(job), "CLAIM-4")
}

// CLAIM-20: the pool's runner group does not serve the repository. Two runners get no job; then the repository's jobs wait,
// with the setting that causes it, until one is tried again.
func TestPass_CLAIM20_AGroupThatDoesNotServeTheRepository(t *testing.T) {
	w := newWorld(t)
	_, err := w.gh.Admin.Install(t.Context(), standin.Installation{
		Account: "acme", GroupAccess: map[string]standin.GroupAccess{"Default": {Visibility: "selected", AllowsPublicRepositories: true}},
	})
	require.NoError(t, err)
	w.eventually("both events of the installation have arrived, after which what was refused is tried again", func() bool { return w.installed.Load() == 2 })
	job, release := w.submit()
	for range 2 {
		pod := w.pod()
		answer := w.delivered(pod)
		w.runner(answer)
		w.registered(answer.JIT.Name, idle)
		w.advance(patience + time.Second)
		require.Equal(t, map[string]int{"idle_runner": 1}, w.pass())
		w.freed(pod)
		w.eventually("it is queued again", func() bool { return w.jobState(job) == fleet.JobQueued })
	}
	const noted = `SELECT count(*) FROM refusals WHERE waits AND trying = 0 AND failures = 2 AND reason = 'not_assigned' AND pool = 'linux'`
	require.EqualValues(t, 1, ledgertest.Int(t, w.url, noted), "its jobs wait from now on")
	ctx, cancel := context.WithCancel(t.Context())
	polled := make(chan error, 1)
	third := w.pod().Pod
	go func() {
		answer, err := w.d.Poll(ctx, third, 0)
		if err == nil {
			err = fmt.Errorf("the third runner's poll was answered: %s", answer.Reply)
		}
		polled <- err
	}()
	w.eventually("it is set aside", func() bool {
		return len(polled) > 0 || ledgertest.Int(t, w.url, `SELECT count(*) FROM workflow_jobs WHERE held = 'refused'`) == 1
	})
	cancel()
	require.ErrorIs(t, await.Receive(t, polled, "the poll ends"), context.Canceled)
	require.Zero(t, w.runnersAtGitHub(), "no third runner is registered")
	refusals, err := w.store.Refusals(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, refusals, 1)
	require.Equal(t, "runner group Default is open to selected repositories only, and acme/app is none of them", refusals[0].Message)

	_, err = w.gh.Admin.Install(t.Context(), standin.Installation{Account: "acme", GroupAccess: map[string]standin.GroupAccess{"Default": {}}})
	require.NoError(t, err)
	w.advance(2 * time.Hour)
	_, err = w.store.RetryRefused(t.Context(), func(dispatch.PoolRef) []string { return nil }, w.clock())
	require.NoError(t, err)
	answer := w.delivered(w.pod())
	_, ended := w.runner(answer)
	w.eventually("it runs", func() bool { return w.jobState(job) == fleet.JobExecuting })
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
}

// RECV-4: absence has to last, and is seen twice; a reappearance resets the clock.
func TestPass_RECV4_AMissingPodIsGoneWhenItsAbsenceLasts(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod, other := w.pod(), w.pod()
	w.delivered(pod)
	w.cluster.hide(pod.UID, true)
	require.Empty(t, w.pass(), "noted")
	w.advance(patience - time.Second)
	require.Empty(t, w.pass())
	w.cluster.hide(pod.UID, false)
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 500, Route: "runners"})
	require.NoError(t, err)
	require.Empty(t, w.pass(), "it is there again, and GitHub cannot be asked")
	w.cluster.hide(pod.UID, true)
	w.advance(2 * time.Second)
	require.Empty(t, w.pass(), "noted anew")
	require.NoError(t, w.gh.Admin.RemoveFault(t.Context(), 0))
	w.advance(patience - time.Second)
	require.Empty(t, w.pass())
	w.advance(2 * time.Second)
	require.Equal(t, map[string]int{"pod_missing_claim": 1}, w.pass())
	require.Equal(t, fleet.ClaimSpent, w.claim(pod).State)
	require.Equal(t, fleet.JobQueued, w.jobState(job))
	require.Equal(t, other.UID, w.cluster.get(other.UID).UID)
}

// RECV-4: a list that is empty, or failed, never means that everything is gone, however often.
func TestPass_RECV4_AnEmptyOrFailedListAbortsThePass(t *testing.T) {
	w := newWorld(t)
	w.submit()
	pod := w.pod()
	w.served(pod)
	w.cluster.hide(pod.UID, true)
	for range 3 {
		w.advance(patience + time.Second)
		require.Empty(t, w.pass())
	}
	require.Equal(t, 3, w.skipped()["empty_list"])
	w.pod()
	w.cluster.listErr = errAPIServer
	for range 3 {
		w.advance(patience + time.Second)
		require.ErrorIs(t, w.r.Pass(t.Context()), errAPIServer)
	}
	require.Equal(t, 3, w.skipped()["list_failed"])
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
	require.Zero(t, ledgertest.Int(t, w.url, `SELECT count(*) FROM runner_claims WHERE missing_since IS NOT NULL`))
}

// Its end was reported, and it cannot be found any more: no absence has to last then.
func TestCheckPod_RECV4_AReportedEndIsBelieved(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	w.delivered(pod)
	w.cluster.drop(pod.UID)
	require.Empty(t, w.check(pod), "nobody has reported anything")
	live, err := w.d.PodStopped(t.Context(), pod.UID, w.clock(), nil)
	require.NoError(t, err)
	require.True(t, live)
	require.Equal(t, map[string]int{"pod_missing_claim": 1}, w.check(pod))
	require.Equal(t, fleet.JobQueued, w.jobState(job))
}

// EXCL-6, RECV-5: what cannot be read is left, counted and said; once it can be read it is recovered. A 404 of a scope that
// cannot be read proves nothing.
func TestPass_EXCL6_RECV5_UnreadableIsLeftAndCounted(t *testing.T) {
	for name, fault := range map[string]standin.Fault{
		"5xx":            {Kind: "rest-status", Status: 500},
		"403":            {Kind: "rest-status", Status: 403},
		"404":            {Kind: "rest-status", Status: 404},
		"jobs are not":   {Kind: "rest-status", Status: 403, Route: "/actions/jobs/"},
		"the repository": {Kind: "rest-status", Status: 404, Route: "/repos/"},
		"lists are not":  {Kind: "rest-status", Status: 404, Route: "/actions/runners"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			job, _ := w.submit()
			pod := w.pod()
			w.delivered(pod)
			_, err := w.gh.Admin.AddFault(t.Context(), fault)
			require.NoError(t, err)
			w.advance(patience + time.Second)
			require.Empty(t, w.pass())
			require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
			require.Equal(t, 1, w.skipped()["unreadable"])
			require.Contains(t, w.log.String(), "in doubt")
			require.NoError(t, w.gh.Admin.RemoveFault(t.Context(), 0))
			w.advance(2 * time.Hour) // and a rate limit that was cached is over
			require.Equal(t, map[string]int{"agent_never_registered": 1}, w.pass())
			w.freed(pod)
			require.Equal(t, fleet.JobQueued, w.jobState(job))
		})
	}
}
