package standin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const twoAndOne = `
name: shards
on: push
jobs:
  test:
    runs-on: [self-hosted, linux]
    outputs: {shard: "${{ matrix.shard }}"}
    strategy:
      fail-fast: false
      matrix: {shard: [1, 2]}
    steps: [{run: "true"}]
  never:
    if: ${{ false }}
    runs-on: [self-hosted, linux]
    steps: [{run: "true"}]
  report:
    needs: test
    runs-on: [self-hosted, linux]
    steps: [{run: "echo ${{ needs.test.outputs.shard }}"}]
`

// attempt lists the jobs of one attempt by name, through go-github.
func (w *world) attempt(run standin.RunView, number int64) map[string]*github.WorkflowJob {
	w.t.Helper()
	out := map[string]*github.WorkflowJob{}
	for _, j := range must(w.org.Actions.ListWorkflowJobsAttempt(w.ctx, "acme", "app", run.ID, number, nil)).Jobs {
		out[j.GetName()] = j
	}
	return out
}

func TestRerun_OnlyWhatFailedAndWhatIsBehindIt(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(twoAndOne)
	response, err := w.org.Actions.RerunFailedJobsByID(w.ctx, "acme", "app", run.ID)
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, response.StatusCode, "it is running")
	w.serve("a", "succeeded", map[string]string{"shard": "one"})
	w.serve("b", "failed", nil)
	first := w.attempt(run, 1)
	require.Equal(t, "failure", must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetConclusion())
	require.Equal(t, "skipped", first["report"].GetConclusion())

	response, err = w.org.Actions.RerunFailedJobsByID(w.ctx, "acme", "app", run.ID)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.StatusCode)
	again := must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID))
	require.Equal(t, 2, again.GetRunAttempt())
	require.Equal(t, "queued", again.GetStatus())
	require.Equal(t, run.ID, again.GetID())
	second := w.attempt(run, 2)
	require.Equal(t, first["test (1)"].GetID(), second["test (1)"].GetID(), "what succeeded is kept")
	require.NotEqual(t, first["test (2)"].GetID(), second["test (2)"].GetID(), "what failed has another id")
	require.EqualValues(t, 2, second["test (2)"].GetRunAttempt())
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 3 }, "its webhook")
	queued := w.hooks.got("workflow_job", "queued")[2].Job.GetWorkflowJob()
	require.EqualValues(t, 2, queued.GetRunAttempt())
	require.Equal(t, second["test (2)"].GetID(), queued.GetID())

	w.serve("c", "succeeded", nil)
	r := w.mint("d", "self-hosted", "linux").start(w.clock.Now()).take()
	require.Contains(t, r.jobName(), "report")
	require.Contains(t, mustJSON(t, r.job["contextData"]), `"one"`, "outputs of what was kept are there")
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	require.Equal(t, "success", must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetConclusion())
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) >= 6 }, "completed")
	require.Equal(t, 6, len(w.hooks.got("workflow_job", "completed")), "a skipped job that is kept is not reported again") //nolint:testifylint // Len would print them
	all := must(w.org.Actions.ListWorkflowJobs(w.ctx, "acme", "app", run.ID, &github.ListWorkflowJobsOptions{Filter: "all"}))
	require.Equal(t, 6, all.GetTotalCount())
	latest := must(w.org.Actions.ListWorkflowJobs(w.ctx, "acme", "app", run.ID, nil))
	require.Equal(t, 4, latest.GetTotalCount())
	response, err = w.org.Actions.RerunFailedJobsByID(w.ctx, "acme", "app", run.ID)
	require.Error(t, err, "nothing failed")
	require.Equal(t, http.StatusForbidden, response.StatusCode)
}

func TestRerun_OneJobOrAll(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	w.serve("a", "failed", nil)
	old := w.job(run, "build").ID
	response, err := w.org.Actions.RerunJobByID(w.ctx, "acme", "app", old)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, response.StatusCode)
	w.serve("b", "succeeded", nil)
	_, err = w.org.Actions.RerunJobByID(w.ctx, "acme", "app", old)
	require.Error(t, err, "it is of an earlier attempt")
	_, err = w.org.Actions.RerunWorkflowByID(w.ctx, "acme", "app", run.ID)
	require.NoError(t, err)
	require.Equal(t, 3, must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetRunAttempt())
	w.serve("c", "succeeded", nil)
	require.Equal(t, "success", must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetConclusion())
}

func TestETag_UnchangedIsFree(t *testing.T) {
	w := newWorld(t, nil)
	token := must(w.app.Apps.CreateInstallationToken(w.ctx, 11, nil)).GetToken()
	ask := func(tag string) *http.Response {
		request, err := http.NewRequestWithContext(w.ctx, "GET", w.in.URL+"/orgs/acme/actions/runners", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("If-None-Match", tag)
		response, err := await.HTTP.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response
	}
	first := ask("")
	require.Equal(t, http.StatusOK, first.StatusCode)
	tag, left := first.Header.Get("ETag"), first.Header.Get("X-RateLimit-Remaining")
	require.NotEmpty(t, tag)
	again := ask(`"other", ` + tag)
	require.Equal(t, http.StatusNotModified, again.StatusCode)
	require.Equal(t, left, again.Header.Get("X-RateLimit-Remaining"), "a 304 does not count")
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x")))
	changed := ask(tag)
	require.Equal(t, http.StatusOK, changed.StatusCode)
	require.NotEqual(t, tag, changed.Header.Get("ETag"))
	require.NotEqual(t, left, changed.Header.Get("X-RateLimit-Remaining"))
	before := must(w.org.RateLimit.Get(w.ctx)).GetCore().Remaining
	require.Equal(t, before, must(w.org.RateLimit.Get(w.ctx)).GetCore().Remaining, "asking for the limits is free")
}

func TestRuns_FilteredByCreation(t *testing.T) {
	w := newWorld(t, nil)
	must(w.org.RateLimit.Get(w.ctx)) // its token lives an hour; an App's JWT would not outlive what follows
	w.submit(oneJob)
	middle := w.clock.Now().Add(time.Minute).UTC()
	w.clock.Advance(2 * time.Minute)
	w.submit(oneJob)
	count := func(created string) int {
		return must(w.org.Actions.ListRepositoryWorkflowRuns(w.ctx, "acme", "app", &github.ListWorkflowRunsOptions{Created: created})).GetTotalCount()
	}
	at := middle.Format(time.RFC3339)
	require.Equal(t, 1, count(">="+at))
	require.Equal(t, 1, count("<"+at))
	require.Equal(t, 2, count(middle.Add(-time.Hour).Format(time.RFC3339)+".."+middle.Add(time.Hour).Format(time.RFC3339)))
	require.Equal(t, 1, count("*.."+at))
	require.Zero(t, count("2020-01-31"))
	_, response, err := w.org.Actions.ListRepositoryWorkflowRuns(w.ctx, "acme", "app", &github.ListWorkflowRunsOptions{Created: "yesterday"})
	require.Error(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, statusOf(response))
}

func TestRerun_SurvivesARestart(t *testing.T) {
	file := t.TempDir() + "/state.json"
	w := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	run := w.submit(twoAndOne)
	w.serve("a", "succeeded", map[string]string{"shard": "one"})
	w.serve("b", "failed", nil)
	_, err := w.org.Actions.RerunFailedJobsByID(w.ctx, "acme", "app", run.ID)
	require.NoError(t, err)
	w.in.Close()
	after := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	require.Equal(t, 2, must(after.org.Actions.GetWorkflowRunByID(after.ctx, "acme", "app", run.ID)).GetRunAttempt())
	after.serve("c", "succeeded", nil)
	r := after.mint("d", "self-hosted", "linux").start(after.clock.Now()).take()
	require.Contains(t, mustJSON(t, r.job["contextData"]), `"one"`)
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	require.Equal(t, "success", must(after.org.Actions.GetWorkflowRunByID(after.ctx, "acme", "app", run.ID)).GetConclusion())
}
