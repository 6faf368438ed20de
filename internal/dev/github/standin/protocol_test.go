package standin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const oneJob = `
name: one
on: push
jobs:
  build:
    runs-on: [self-hosted, Linux]
    steps:
      - run: echo hello
`

func TestJob_QueuedToCompleted_BothFlows(t *testing.T) {
	for name, begin := range map[string]func(*runner, time.Time){
		"broker at once": func(r *runner, now time.Time) { r.start(now) },
		"old flow":       func(r *runner, now time.Time) { r.oldFlow(now) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			run := w.submit(oneJob)
			w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 1 }, "queued webhook")

			r := w.mint("pod-1", "self-hosted", "linux", "x64")
			begin(r, w.clock.Now())
			r.take()
			require.Equal(t, "build", r.jobName())
			require.Equal(t, http.StatusOK, r.renew())
			require.Equal(t, http.StatusOK, r.complete("succeeded", nil))

			view, err := w.in.Admin.WaitRun(w.ctx, run.ID)
			require.NoError(t, err)
			require.Equal(t, "success", view.Conclusion)
			j := w.job(run, "build")
			require.Equal(t, 1, j.Acquisitions)
			require.Equal(t, "pod-1", j.RunnerName)
			require.Equal(t, "success", j.Conclusion)
			require.NotNil(t, j.QueuedAt)
			require.NotNil(t, j.StartedAt)
			require.NotNil(t, j.CompletedAt)
			require.Len(t, j.Steps, 1)
			w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) == 1 }, "completed webhook")
			started := w.hooks.got("workflow_job", "in_progress")
			require.Len(t, started, 1)
			require.Equal(t, "pod-1", started[0].Job.GetWorkflowJob().GetRunnerName())
			require.Equal(t, r.id, started[0].Job.GetWorkflowJob().GetRunnerID())
			require.Empty(t, w.in.Runners(), "an ephemeral runner is gone after its one job")
			require.Equal(t, http.StatusNoContent, r.call("DELETE", r.broker+"/session", r.token, nil, nil))
			_, code := r.poll("Online")
			require.Equal(t, http.StatusNotFound, code)
			require.Equal(t, http.StatusNotFound, r.call("DELETE", r.broker+"/session", r.token, nil, nil))
			require.Equal(t, http.StatusBadRequest, r.authorize(jwt.SigningMethodPS256, w.clock.Now()))
		})
	}
}

func TestPoll_IsWokenAtOnceAndHeldOtherwise(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.PollHold = 30 * time.Millisecond })
	r := w.mint("pod-1", "self-hosted", "linux").start(w.clock.Now())
	_, code := r.poll("Online")
	require.Equal(t, http.StatusAccepted, code, "an idle poll ends with nothing")

	w2 := newWorld(t, nil) // holds 50 s: the test would not survive it
	r2 := w2.mint("pod-2", "self-hosted", "linux").start(w2.clock.Now())
	got := make(chan message, 1)
	go func() {
		m, _ := r2.poll("Online")
		got <- m
	}()
	w2.submit(oneJob)
	select {
	case m := <-got:
		require.Equal(t, "RunnerJobRequest", m.MessageType)
	case <-time.After(waitFor):
		require.Fail(t, "the held poll was not woken")
	}
}

func TestMatching_AnyIdleRunnerWithTheLabelsInScope(t *testing.T) {
	w := newWorld(t, nil)
	other := w.mint("windows", "self-hosted", "windows").start(w.clock.Now())
	solo := newRunner(t, must(w.user.Actions.GenerateRepoJITConfig(w.ctx, "octo", "solo", jit("solo", "self-hosted", "linux"))))
	solo.start(w.clock.Now())
	lib := newRunner(t, must(w.org.Actions.GenerateRepoJITConfig(w.ctx, "acme", "lib", jit("lib", "self-hosted", "linux"))))
	lib.start(w.clock.Now())
	run := w.submit(oneJob)
	require.False(t, w.job(run, "build").Assigned, "none of these may run it: labels, owner, repository")
	newRunner(t, must(w.org.Actions.GenerateRepoJITConfig(w.ctx, "acme", "lib", jit("late", "self-hosted", "linux")))).start(w.clock.Now())
	newRunner(t, must(w.user.Actions.GenerateRepoJITConfig(w.ctx, "octo", "solo", jit("late", "self-hosted", "linux")))).start(w.clock.Now())
	w.mint("late", "self-hosted").start(w.clock.Now())
	require.False(t, w.job(run, "build").Assigned, "nor when they come later than the job")

	fit := w.mint("fit", "Self-Hosted", "LINUX", "gpu").start(w.clock.Now())
	fit.take()
	require.Equal(t, "fit", w.job(run, "build").RunnerName)
	_ = other
}

func TestAcquire_OnlyTheAssignedRunner_AndItsOwnRepeat(t *testing.T) {
	w := newWorld(t, nil)
	a := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	b := w.mint("b", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	m, _ := a.poll("Online")
	require.Equal(t, "RunnerJobRequest", m.MessageType, "the runner that has been idle longest gets it")

	b.request, b.run = a.request, a.run
	require.Equal(t, http.StatusNotFound, b.acknowledge())
	require.Equal(t, http.StatusConflict, b.acquire())
	require.Equal(t, http.StatusOK, a.acquire())
	require.Equal(t, http.StatusOK, a.acquire(), "a lost answer is given again")
	j := w.job(run, "build")
	require.Equal(t, 1, j.Acquisitions)
	require.Equal(t, 1, j.RepeatedAcquires)
	require.Equal(t, []string{"a"}, j.AcquiredBy)
	b.jobToken, b.planID, b.jobID = b.token, a.planID, a.jobID
	require.Equal(t, http.StatusNotFound, b.complete("succeeded", nil), "another runner cannot complete it")
	require.Equal(t, http.StatusNotFound, b.renew())
}

func TestPoll_RequestIsRepeatedUntilAcknowledged(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.PollHold = 20 * time.Millisecond })
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	w.submit(oneJob)
	first, _ := r.poll("Online")
	again, _ := r.poll("Online")
	require.Equal(t, first.MessageID, again.MessageID)
	require.Equal(t, http.StatusOK, r.acknowledge())
	_, code := r.poll("Online")
	require.Equal(t, http.StatusAccepted, code)
}

func TestAssignment_NotAcquiredIsQueuedAgain(t *testing.T) {
	w := newWorld(t, nil)
	dead := w.mint("dead", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	require.True(t, w.job(run, "build").Assigned)
	w.clock.Advance(61 * time.Second)
	w.in.Tick()
	require.False(t, w.job(run, "build").Assigned)

	live := w.mint("live", "self-hosted", "linux").start(w.clock.Now()).take()
	require.Equal(t, "build", live.jobName())
	j := w.job(run, "build")
	require.Equal(t, 2, j.Assignments)
	require.Equal(t, 1, j.Acquisitions)
	dead.run, dead.request = live.run, "stale"
	require.Equal(t, http.StatusNotFound, dead.acquire())
}

func TestLost_SilentRunnerFailsItsJob(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	r.take()
	w.clock.Advance(9 * time.Minute)
	require.Equal(t, http.StatusOK, r.renew())
	w.clock.Advance(9 * time.Minute)
	w.in.Tick()
	require.Equal(t, "in_progress", w.job(run, "build").Status, "it renewed nine minutes ago")
	w.clock.Advance(2 * time.Minute)
	w.in.Tick()
	j := w.job(run, "build")
	require.True(t, j.Lost)
	require.Equal(t, "failure", j.Conclusion)
	require.Equal(t, 1, w.in.State().Lost)
	require.Equal(t, http.StatusNotFound, r.complete("succeeded", nil), "it comes too late")
}

func TestRegistration_NeverStartedIsRemovedAfterADay(t *testing.T) {
	w := newWorld(t, nil)
	w.mint("never", "self-hosted")
	w.clock.Advance(23 * time.Hour)
	w.in.Tick()
	require.Len(t, w.in.Runners(), 1)
	w.clock.Advance(2 * time.Hour)
	w.in.Tick()
	require.Empty(t, w.in.Runners())
}

func TestSession_ConflictUntilTheOldOneIsGone(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted").start(w.clock.Now())
	require.Equal(t, http.StatusConflict, r.openSession())
	require.Equal(t, http.StatusNoContent, r.call("DELETE", r.broker+"/session", r.token, nil, nil))
	require.False(t, w.in.Runners()[0].Online)
	require.Equal(t, http.StatusOK, r.openSession())
	w.clock.Advance(2 * time.Minute)
	w.in.Tick()
	require.False(t, w.in.Runners()[0].Online, "silent for longer than a minute")
	require.Equal(t, http.StatusOK, r.openSession(), "the old session has expired")
	old := r.session
	r.session = "00000000-0000-4000-8000-000000000000"
	_, code := r.poll("Online")
	require.Equal(t, http.StatusUnauthorized, code)
	require.NotEmpty(t, old)
}

func TestToken_AssertionIsVerified(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.FreshKeys = true })
	a, b := w.mint("a", "x"), w.mint("b", "x")
	require.NotEqual(t, a.key.N, b.key.N)
	a.key, b.key = b.key, a.key
	require.Equal(t, http.StatusBadRequest, a.authorize(jwt.SigningMethodPS256, w.clock.Now()))
	a.key = b.key
	require.Equal(t, http.StatusOK, a.authorize(jwt.SigningMethodPS256, w.clock.Now()))
	require.Equal(t, http.StatusBadRequest, a.authorize(jwt.SigningMethodPS256, w.clock.Now().Add(-time.Hour)), "expired")
	require.Equal(t, http.StatusOK, a.authorize(jwt.SigningMethodRS256, w.clock.Now()))
	require.Equal(t, http.StatusOK, a.openSession())
	w.clock.Advance(2 * time.Hour)
	_, code := a.poll("Online")
	require.Equal(t, http.StatusUnauthorized, code, "the token has expired")
}

func TestComplete_ResultsAsWordsOrNumbers(t *testing.T) {
	w := newWorld(t, nil)
	for result, want := range map[any]string{"Succeeded": "success", "failed": "failure", "Canceled": "cancelled", 0: "success", 2: "failure", 3: "cancelled"} {
		run := w.submit(oneJob)
		r := w.mint("r", "self-hosted", "linux").start(w.clock.Now()).take()
		body := map[string]any{"planId": r.planID, "jobId": r.jobID, "conclusion": "nonsense"}
		require.Equal(t, http.StatusBadRequest, r.call("POST", r.run+"completejob", r.jobToken, body, nil))
		body["conclusion"] = result
		body["stepResults"] = []map[string]any{{"external_id": "s", "number": 1, "name": "step", "status": 2, "conclusion": result}}
		require.Equal(t, http.StatusOK, r.call("POST", r.run+"completejob", r.jobToken, body, nil))
		j := w.job(run, "build")
		require.Equal(t, want, j.Conclusion)
		require.Equal(t, want, j.Steps[0].Conclusion)
		require.Equal(t, "completed", j.Steps[0].Status)
	}
}

func TestResults_StepUpdatesAndSizeCap(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.LogLimit = 10 })
	run := w.submit(oneJob)
	r := w.mint("r", "self-hosted", "linux").start(w.clock.Now()).take()
	update := func(status, conclusion int) {
		require.Equal(t, http.StatusOK, r.call("POST", r.results+"twirp/github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate", r.jobToken, map[string]any{
			"workflow_job_run_backend_id": r.jobID, "workflow_run_backend_id": r.planID, "change_order": 1,
			"steps": []map[string]any{{"external_id": "s1", "number": 1, "name": "Run it", "status": status, "conclusion": conclusion}},
		}, nil))
	}
	update(3, 0)
	require.Equal(t, "in_progress", w.job(run, "build").Steps[0].Status)
	update(6, 3)
	step := w.job(run, "build").Steps[0]
	require.Equal(t, "completed", step.Status)
	require.Equal(t, "failure", step.Conclusion)
	require.Len(t, w.job(run, "build").Steps, 1)

	r.upload("GetStepLogsSignedBlobURL", "s1", "12345678", "90too much")
	text, err := w.in.Admin.JobLog(w.ctx, w.job(run, "build").ID)
	require.NoError(t, err)
	require.Contains(t, text, "1234567890\n[8 more bytes were dropped")
	response, err := http.NewRequestWithContext(w.ctx, "PUT", w.in.URL+"/_services/results/blobs/"+"1-job-"+"?sig=forged", nil)
	require.NoError(t, err)
	answer, err := await.HTTP.Do(response)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
}
