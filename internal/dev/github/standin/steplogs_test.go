package standin_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The output of each step can be read as it grows, without the lines that the reader has and without timestamps, wherever it came from.
func TestStepLogs_OfARunningJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	id := w.job(run, "build").ID
	logs := func(have map[int]int) standin.JobLogView {
		t.Helper()
		view, err := w.in.Admin.StepLogs(w.ctx, id, have)
		require.NoError(t, err)
		return view
	}
	require.Equal(t, "queued", logs(nil).Job.Status)
	require.Empty(t, logs(nil).Steps)

	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	update := func(steps ...map[string]any) {
		require.Equal(t, http.StatusOK, r.call("POST", r.results+"twirp/github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate", r.jobToken, map[string]any{
			"workflow_job_run_backend_id": r.jobID, "workflow_run_backend_id": r.planID, "change_order": 1, "steps": steps,
		}, nil))
	}
	update(map[string]any{"external_id": "s1", "number": 1, "name": "Set up job", "status": 6, "conclusion": 2},
		map[string]any{"external_id": "s2", "number": 2, "name": "Run make", "status": 3})
	conn, _, err := r.dialFeed(r.jobToken)
	require.NoError(t, err)
	require.NoError(t, conn.WriteJSON(map[string]any{"count": 3, "value": []string{"one", "", "2026-01-01T00:00:00.5Z is the step's own"}, "stepId": "S2", "startLine": 1}))
	w.eventually(func() bool { return len(logs(nil).Steps[1].Lines) == 3 }, "the live log")
	r.upload("GetStepLogsSignedBlobURL", "s1", "2026-11-01T10:00:00.1234567Z ready\r\n")
	view := logs(nil)
	require.Equal(t, "in_progress", view.Job.Status)
	require.Equal(t, []string{"Set up job", "Run make"}, []string{view.Steps[0].Name, view.Steps[1].Name})
	require.Equal(t, []string{"ready"}, view.Steps[0].Lines)
	require.Equal(t, []string{"one", "", "2026-01-01T00:00:00.5Z is the step's own"}, view.Steps[1].Lines)
	require.Empty(t, view.Text)

	// What is uploaded continues where the feed was read, and a line that is not whole yet is not sent.
	r.upload("GetStepLogsSignedBlobURL", "s2", "2026-11-01T10:00:00.1234567Z one\n2026-11-01T10:00:00.1234567Z \n",
		"2026-11-01T10:00:00.1234567Z three\n2026-11-01T10:00:00.1234567Z four\n2026-11-01T10:00:00.1234567Z fi")
	require.Equal(t, []string{"four"}, logs(map[int]int{1: 1, 2: 3}).Steps[1].Lines)
	require.Empty(t, logs(map[int]int{1: 1, 2: 9}).Steps[1].Lines)
	require.Empty(t, logs(map[int]int{1: 1}).Steps[0].Lines)
}

func TestStepLogs_OfACompletedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	r.upload("GetStepLogsSignedBlobURL", "s1", "2026-11-01T10:00:00.1234567Z the end, without a line feed")
	require.Equal(t, http.StatusOK, r.complete("failed", nil))
	view, err := w.in.Admin.StepLogs(w.ctx, w.job(run, "build").ID, nil)
	require.NoError(t, err)
	require.Equal(t, "failure", view.Job.Conclusion)
	require.Empty(t, view.Job.Steps, "they are beside it")
	require.Len(t, view.Steps, 1)
	require.Equal(t, "failure", view.Steps[0].Conclusion)
	require.Equal(t, []string{"the end, without a line feed"}, view.Steps[0].Lines)
}

// The log of a runner that uploads none of its steps is that of the job.
func TestStepLogs_WithoutOutputOfSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	r.upload("GetJobLogsSignedBlobURL", "", "whole\n")
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	view, err := w.in.Admin.StepLogs(w.ctx, w.job(run, "build").ID, nil)
	require.NoError(t, err)
	require.Equal(t, "whole\n", view.Text)
}

func TestStepLogs_RefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, err := w.in.Admin.StepLogs(w.ctx, 7, nil)
	var refusal *standin.AdminError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusNotFound, refusal.Status)
	for _, have := range []string{"1", "1:", ":1", "1:-1", "a:1", "1:1,"} {
		response, err := await.HTTP.Get(w.in.URL + "/_standin/jobs/7/steps?have=" + have)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusBadRequest, response.StatusCode, have)
	}
}
