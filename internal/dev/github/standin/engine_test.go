package standin_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

const pipeline = `
name: pipeline
on: [push, workflow_dispatch]
jobs:
  build:
    runs-on: [self-hosted, linux]
    outputs:
      version: ${{ steps.v.outputs.version }}
    steps:
      - id: v
        run: echo "version=1.2" >> "$GITHUB_OUTPUT"
  test:
    needs: build
    runs-on: [self-hosted, linux]
    strategy:
      fail-fast: false
      matrix:
        shard: [1, 2]
    steps:
      - run: echo ${{ needs.build.outputs.version }} ${{ matrix.shard }}
  deploy:
    needs: test
    runs-on: [self-hosted, linux]
    steps:
      - run: echo deploy
`

// serve mints a runner, takes any job, and ends it.
func (w *world) serve(name, conclusion string, outputs map[string]string) *runner {
	w.t.Helper()
	r := w.mint(name, "self-hosted", "linux").start(w.clock.Now()).take()
	require.Equal(w.t, http.StatusOK, r.complete(conclusion, outputs))
	return r
}

func TestEngine_NeedsOutputsMatrix(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(pipeline)
	require.Len(t, w.jobs(run), 1, "the others wait for build")
	w.serve("a", "succeeded", map[string]string{"version": "1.2"})
	require.Len(t, w.jobs(run), 3)
	r := w.mint("b", "self-hosted", "linux").start(w.clock.Now()).take()
	require.Contains(t, fmt.Sprint(r.job["contextData"]), "1.2", "the output of build is in the message of test")
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	w.serve("c", "failed", nil)
	view, err := w.in.Admin.WaitRun(w.ctx, run.ID)
	require.NoError(t, err)
	require.Equal(t, "failure", view.Conclusion)
	deploy := w.job(run, "deploy")
	require.Equal(t, "skipped", deploy.Conclusion)
	require.Zero(t, deploy.Acquisitions)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) == 4 }, "a skipped job is completed, too")
	state, err := w.in.Admin.State(w.ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"success": 2, "failure": 1, "skipped": 1}, state.Conclusions)
	require.Empty(t, state.AcquiredTwice)
}

func TestEngine_CancelQueuedAndRunningJobs(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(`
on: push
jobs:
  one:
    runs-on: [self-hosted, linux]
    steps: [{run: sleep 100}]
  two:
    runs-on: [self-hosted, linux]
    steps: [{run: sleep 100}]
`)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
	got := make(chan message, 1)
	go func() {
		m, _ := r.poll("Busy")
		got <- m
	}()
	require.NoError(t, w.in.Admin.CancelRun(w.ctx, run.ID))
	require.Equal(t, "cancelled", w.job(run, "two").Conclusion)
	select {
	case m := <-got:
		require.Equal(t, "JobCancellation", m.MessageType)
		require.Contains(t, m.Body, r.jobID)
	case <-time.After(waitFor):
		require.Fail(t, "the runner was not told")
	}
	require.Equal(t, "in_progress", w.job(run, "one").Status, "until its runner says so")
	require.Equal(t, http.StatusOK, r.complete("canceled", nil))
	view, err := w.in.Admin.WaitRun(w.ctx, run.ID)
	require.NoError(t, err)
	require.Equal(t, "cancelled", view.Conclusion)
	require.Error(t, w.in.Admin.CancelRun(w.ctx, run.ID), "it has ended")
}

func TestEngine_CancelOfAnAssignedJobWithdrawsIt(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	m, _ := r.poll("Online")
	require.Equal(t, "RunnerJobRequest", m.MessageType)
	require.NoError(t, w.in.Admin.CancelJob(w.ctx, w.job(run, "build").ID))
	require.Equal(t, http.StatusNotFound, r.acknowledge())
	require.Equal(t, http.StatusNotFound, r.acquire())
	second := w.submit(oneJob)
	require.True(t, w.job(second, "build").Assigned, "the runner is free again")
	r.take()
}

func TestEngine_TimeoutMinutesAndUnheededCancellation(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.LostAfter = 24 * time.Hour })
	run := w.submit(`
on: push
jobs:
  slow:
    runs-on: [self-hosted, linux]
    timeout-minutes: 5
    steps: [{run: sleep 1000}]
`)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
	w.clock.Advance(5*time.Minute + time.Second)
	w.in.Tick()
	m, _ := r.poll("Busy")
	require.Equal(t, "JobCancellation", m.MessageType)
	w.clock.Advance(6 * time.Minute)
	w.in.Tick()
	j := w.job(run, "slow")
	require.Equal(t, "cancelled", j.Conclusion, "the runner did not heed it")
	require.Equal(t, http.StatusNotFound, r.complete("succeeded", nil))
}

func TestEngine_FailFastCancelsTheMatrix(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(`
on: push
jobs:
  test:
    runs-on: [self-hosted, linux]
    strategy:
      matrix:
        shard: [1, 2, 3]
    steps: [{run: "true"}]
`)
	busy := w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
	w.serve("b", "failed", nil)
	conclusions := map[string]int{}
	for _, j := range w.jobs(run) {
		conclusions[j.Conclusion]++
	}
	require.Equal(t, map[string]int{"failure": 1, "cancelled": 1, "": 1}, conclusions)
	m, _ := busy.poll("Busy")
	require.Equal(t, "JobCancellation", m.MessageType)
	require.Equal(t, http.StatusOK, busy.complete("canceled", nil))
	view, err := w.in.Admin.WaitRun(w.ctx, run.ID)
	require.NoError(t, err)
	require.Equal(t, "failure", view.Conclusion)
}

func TestEngine_QueuedForADayIsCancelled(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	w.clock.Advance(25 * time.Hour)
	w.in.Tick()
	require.Equal(t, "cancelled", w.job(run, "build").Conclusion)
}

func TestEngine_RefusesWhatItCannotRun(t *testing.T) {
	w := newWorld(t, nil)
	for name, sub := range map[string]standin.Submission{
		"uses":       {FileName: "ci.yaml", Repo: "acme/app", Content: "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - uses: actions/checkout@v4\n"},
		"no yaml":    {FileName: "ci.yaml", Repo: "acme/app", Content: "{{{"},
		"no repo":    {FileName: "ci.yaml", Repo: "acme/none", Content: oneJob},
		"which repo": {FileName: "ci.yaml", Content: oneJob},
		"event":      {FileName: "ci.yaml", Repo: "acme/app", Content: oneJob, Event: "schedule"},
		"count":      {FileName: "ci.yaml", Repo: "acme/app", Content: oneJob, Count: 1e6},
	} {
		_, err := w.in.Admin.Submit(w.ctx, sub)
		var refused *standin.AdminError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, http.StatusUnprocessableEntity, refused.Status, name)
		require.NotEmpty(t, refused.Message)
		if name == "uses" {
			require.Contains(t, refused.Message, "ci.yaml:6", "file and line are named")
		}
		if name == "no repo" {
			require.Contains(t, refused.Message, `repository "acme/none" not found. Repositories: acme/app`)
		}
	}
}

func TestAdmin_TokenGuardsIt(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.AdminToken = "secret" })
	_, err := w.in.Admin.State(w.ctx)
	require.NoError(t, err)
	stranger := &standin.AdminClient{URL: w.in.URL}
	_, err = stranger.State(w.ctx)
	var refused *standin.AdminError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusUnauthorized, refused.Status)
}

func TestState_RestartLosesNothing(t *testing.T) {
	file := t.TempDir() + "/state.json"
	before := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	run := before.submit(pipeline)
	builder := before.mint("builder", "self-hosted", "linux")
	builder.start(before.clock.Now()).take()
	require.Equal(t, http.StatusOK, builder.complete("succeeded", map[string]string{"version": "1.2"}))
	running := before.mint("running", "self-hosted", "linux")
	running.start(before.clock.Now()).take()
	running.upload("GetStepLogsSignedBlobURL", "s1", "half a ")
	idle := before.mint("idle", "self-hosted", "linux") // never started yet
	before.eventually(func() bool { return len(before.hooks.got("workflow_job", "")) == 6 }, "webhooks are out")
	before.in.Close()

	after := newWorld(t, func(o *standin.Options) { o.StateFile, o.WebhookURL = file, before.hooks.URL })
	for _, r := range []*runner{running, idle} { // the address is another; a real restart keeps it
		r.move(before.in.URL, after.in.URL)
	}
	state := after.in.State()
	require.Equal(t, map[string]int{"completed": 1, "in_progress": 1, "queued": 1}, state.Jobs)
	require.Equal(t, 2, state.Runners)
	require.Equal(t, http.StatusOK, running.renew())
	running.upload("GetStepLogsSignedBlobURL", "s1", "log")
	require.Equal(t, http.StatusOK, running.complete("succeeded", nil))
	idle.start(after.clock.Now()).take()
	require.Contains(t, fmt.Sprint(idle.job["contextData"]), "1.2", "outputs from before the restart")
	require.Equal(t, http.StatusOK, idle.complete("succeeded", nil))
	last := after.mint("last", "self-hosted", "linux")
	last.start(after.clock.Now()).take()
	require.Equal(t, http.StatusOK, last.complete("succeeded", nil))
	view, err := after.in.Admin.WaitRun(after.ctx, run.ID)
	require.NoError(t, err)
	require.Equal(t, "success", view.Conclusion)
	for _, j := range after.jobs(run) {
		require.Equal(t, 1, j.Acquisitions, j.Name)
	}
	require.Len(t, before.hooks.got("installation", "created"), 2, "installations are announced once")
}

func TestState_UnreadableFileIsRefused(t *testing.T) {
	file := t.TempDir() + "/state.json"
	require.NoError(t, writeFile(file, "{"))
	_, err := standin.Start(t.Context(), standin.Options{StateFile: file})
	require.ErrorContains(t, err, "move it away")
}
