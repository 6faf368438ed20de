package onebox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const adminToken = "the administrators' token"

// appKey is the stand-in's of all tests: making one takes long.
var appKey = sync.OnceValues(func() (standin.Options, error) {
	key, _, err := standin.GenerateAppKey()
	return standin.Options{AppKey: key, AppID: 1, RunnerKeys: 1, AdminToken: adminToken}, err
})

// said are the events that a client reports.
type said struct {
	mu     sync.Mutex
	events []Event
	hear   func(Event)
}

func (s *said) report(e Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	hear := s.hear
	s.mu.Unlock()
	if hear != nil {
		hear(e)
	}
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, e := range s.events {
		lines = append(lines, string(e.Kind)+" "+e.Message)
	}
	return strings.Join(lines, "\n")
}

// connected is a client of a real stand-in, found by the files of a `bullpen up` in the default state directory.
func connected(t *testing.T) (*Client, *standin.Local, *said) {
	t.Helper()
	opts, err := appKey()
	require.NoError(t, err)
	opts.Installations = []standin.Installation{{Account: "acme", Repositories: []string{"app"}}}
	github, err := standin.Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(github.Close)
	github.Admin.Token = adminToken
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	layout, err := NewLayout(filepath.Join(base, "bullpen", "onebox"))
	require.NoError(t, err)
	require.NoError(t, layout.prepare(false, false))
	self, err := childproc.Identify("up", os.Getpid())
	require.NoError(t, err)
	require.NoError(t, writeJSON(layout.statusFile(), Where{GitHub: github.URL, Owner: self, StandIn: true}))
	require.NoError(t, writePrivate(layout.secret("admin-token"), []byte(adminToken+"\n")))
	heard := &said{}
	client, err := Connect(layout.Dir, heard.report)
	require.NoError(t, err)
	client.pools = func(context.Context) ([]fleet.LabelledPool, error) {
		return []fleet.LabelledPool{{Name: "default", Labels: []string{"bullpen"}}}, nil
	}
	return client, github, heard
}

func workflowOf(content string) WorkflowFile { return WorkflowFile{Name: "ci.yaml", Content: content} }

const twoJobs = `
on: [push, workflow_dispatch]
jobs:
  build: {runs-on: bullpen, steps: [{run: make}]}
  test: {runs-on: bullpen, steps: [{run: make test}]}
  deploy: {runs-on: bullpen, needs: test, steps: [{run: make deploy}]}
`

// skippedJob needs no runner, and groupJob fails without one.
const (
	skippedJob = "on: push\njobs: {never: {if: false, runs-on: bullpen, steps: [{run: make}]}}"
	groupJob   = "on: push\njobs: {lost: {runs-on: {group: nowhere, labels: bullpen}, steps: [{run: make}]}}"
)

func TestClient_RunReportsTheRunAndItsJobs(t *testing.T) {
	client, github, heard := connected(t)
	result, err := client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	require.NoError(t, err)
	require.Empty(t, result.Runs, "it does not wait")
	runs, err := github.Admin.Runs(t.Context())
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.Equal(t, "workflow_dispatch", runs[0].Event)
	require.Equal(t, fmt.Sprintf("run Submitted ci.yaml to acme/app as run %d.\n"+
		"job job %d  build                    queued\n"+
		"job job %d  test                     queued\n"+
		"note `bullpen jobs --watch` follows the jobs; `bullpen job ID --log` prints a log.", runs[0].ID, runs[0].Jobs[0], runs[0].Jobs[1]), heard.text())
	require.Equal(t, &RunChange{ID: runs[0].ID, Repository: "acme/app", File: "ci.yaml", Status: "queued"}, heard.events[0].Run)
}

func TestClient_RunTakesAnEventInputsAndARepository(t *testing.T) {
	client, github, heard := connected(t)
	const dispatched = "on: {push: , workflow_dispatch: {inputs: {version: {required: true}}}}\njobs: {a: {runs-on: bullpen, steps: [{run: make}]}}"
	for says, opts := range map[string]RunOptions{
		"it lists: push":            {File: workflowOf(skippedJob), Event: "schedule"},
		`"version" is required`:     {File: workflowOf(dispatched), Event: "workflow_dispatch"},
		`the file has no input "x"`: {File: workflowOf(dispatched), Event: "workflow_dispatch", Inputs: map[string]string{"version": "1", "x": "2"}},
		"--repo must be OWNER/NAME": {File: workflowOf(dispatched), Event: "push", Repository: "app"},
		"OWNER/NAME, got \"a/b/c\"": {File: workflowOf(dispatched), Event: "push", Repository: "a/b/c"},
		"not a repository's name":   {File: workflowOf(dispatched), Event: "push", Repository: "acme/a b"},
	} {
		_, err := client.Run(t.Context(), opts)
		require.ErrorContains(t, err, says)
	}
	require.Zero(t, github.State().Runs, "a mistake starts nothing")
	require.Empty(t, heard.text())

	opts := RunOptions{File: workflowOf(dispatched), Event: "workflow_dispatch", Inputs: map[string]string{"version": "1=2"}, Repository: "other/Thing"}
	_, err := client.Run(t.Context(), opts)
	require.NoError(t, err)
	require.Contains(t, heard.text(), "note added repository other/Thing to the stand-in for GitHub\nrun Submitted ci.yaml to other/Thing as run ")
	opts.Repository = "Other/thing"
	_, err = client.Run(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(heard.text(), "added repository"), "it is there, whatever the case of its letters")
	require.Contains(t, heard.text(), "Submitted ci.yaml to other/Thing as run")
}

// The exit code is that of `bullpen up --exit-when-done`.
func TestClient_WatchEndsWithTheResult(t *testing.T) {
	client, github, heard := connected(t)
	for content, c := range map[string]struct {
		code int
		says []string
	}{
		skippedJob: {0, []string{"never                    skipped", "completed: skipped."}},
		groupJob:   {2, []string{`lost                     failure: there is no runner group "nowhere" here`, "completed: failure."}},
	} {
		result, err := client.Run(t.Context(), RunOptions{File: workflowOf(content), Watch: true})
		require.NoError(t, err)
		require.Equal(t, c.code, result.ExitCode(), content)
		for _, says := range c.says {
			require.Contains(t, heard.text(), says)
		}
	}
	heard.hear = func(e Event) {
		if e.Job != nil && e.Job.Name == "build" && e.Job.Status == "queued" {
			job, err := github.Admin.Job(t.Context(), e.Job.ID)
			if err == nil {
				_, err = client.CancelRun(t.Context(), job.RunID)
			}
			if err != nil {
				t.Errorf("cancelling the run: %v", err)
			}
		}
	}
	result, err := client.Run(await.Context(t), RunOptions{File: workflowOf(twoJobs), Watch: true})
	require.NoError(t, err)
	require.Equal(t, 3, result.ExitCode())
	require.Contains(t, heard.text(), "build                    cancelled", "each job's result is reported")
	require.Contains(t, heard.text(), "deploy                   skipped")
}

// CLAIM-21: a run with a job that no pool serves would never complete.
func TestClient_CLAIM21_WatchRefusesAJobThatNoPoolServes(t *testing.T) {
	client, github, heard := connected(t)
	client.at = " --state-dir /elsewhere"
	misspelt := workflowOf(strings.ReplaceAll(skippedJob, "if: false, runs-on: bullpen", "runs-on: bulpen"))
	_, err := client.Run(await.Context(t), RunOptions{File: misspelt, Watch: true})
	require.ErrorContains(t, err, "job never stays queued: no pool serves bulpen. Nearest: pool default has bullpen, not bulpen. Write `runs-on: bullpen`")
	runs, listing := github.Admin.Runs(t.Context())
	require.NoError(t, listing)
	require.ErrorContains(t, err, fmt.Sprintf(" `bullpen cancel --run %d --state-dir /elsewhere` cancels the run", runs[0].ID))

	_, err = client.Run(t.Context(), RunOptions{File: misspelt})
	require.NoError(t, err, "without --watch it is submitted")
	require.Contains(t, heard.text(), "note job never stays queued: no pool serves bulpen.")
}

func TestClient_WatchIsInterrupted(t *testing.T) {
	client, _, heard := connected(t)
	ctx, interrupt := context.WithCancel(await.Context(t))
	defer interrupt()
	heard.hear = func(e Event) {
		if e.Job != nil {
			interrupt()
		}
	}
	_, err := client.Run(ctx, RunOptions{File: workflowOf(twoJobs), Watch: true})
	require.ErrorIs(t, err, errIncomplete)
	require.ErrorContains(t, err, " continues; `bullpen cancel --run ")
}

// A stand-in that cannot be reached is being restarted, as long as its `bullpen up` runs.
func TestClient_WatchEndsWithTheUp(t *testing.T) {
	client, github, heard := connected(t)
	asked := 0
	client.running = func() bool { asked++; return asked == 1 }
	heard.hear = func(e Event) {
		if e.Job != nil && e.Job.Name == "test" {
			github.Close()
		}
	}
	_, err := client.Run(await.Context(t), RunOptions{File: workflowOf(twoJobs), Watch: true})
	require.ErrorContains(t, err, "`bullpen up` in "+client.dir+" has stopped. Its next start resumes the runs")
	require.Equal(t, 2, asked)
	client.running = func() bool { return true }
	_, err = client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	require.ErrorContains(t, err, "cannot reach the stand-in for GitHub: connection refused")
}

func TestClient_CancelsQueuedJobsAtOnce(t *testing.T) {
	client, github, _ := connected(t)
	_, err := client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	require.NoError(t, err)
	jobs, err := github.Admin.Jobs(t.Context(), 0, "queued")
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	build, run := jobs[0], jobs[0].RunID

	says, err := client.CancelJob(t.Context(), build.ID)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("Cancelled job %d (build).", build.ID), says)
	_, err = client.CancelJob(t.Context(), build.ID)
	require.EqualError(t, err, fmt.Sprintf("job %d (build) was not cancelled: it has completed with conclusion cancelled", build.ID))
	_, err = client.CancelJob(t.Context(), 7)
	require.EqualError(t, err, "job 7 not found. `bullpen jobs --completed -o wide` lists jobs and their runs")

	says, err = client.CancelRun(t.Context(), run)
	require.NoError(t, err)
	require.Contains(t, says, fmt.Sprintf("Cancelled job %d (test).", jobs[1].ID))
	_, err = client.CancelRun(t.Context(), run)
	require.EqualError(t, err, fmt.Sprintf("run %d was not cancelled: it has completed", run))
	_, err = client.CancelRun(t.Context(), 8)
	require.ErrorContains(t, err, "run 8 not found")
}

func TestCancelledText_OfARunningJob(t *testing.T) {
	says := cancelledText(standin.JobView{ID: 5, Name: "build", Status: "in_progress"})
	require.Equal(t, "Cancelling job 5 (build): its runner stops the current step, and runs steps with always() or cancelled().", says)
}

// The token is in the file and in the requests, and nowhere else.
func TestClient_NeverShowsTheToken(t *testing.T) {
	client, github, heard := connected(t)
	_, err := client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	require.NoError(t, err)
	github.Close()
	_, unreachable := client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	client, _, _ = connected(t)
	client.github.Token = adminToken + "."
	_, refused := client.CancelJob(t.Context(), 1)
	require.ErrorContains(t, refused, "the admin API needs its token")
	for _, text := range []string{heard.text(), unreachable.Error(), refused.Error()} {
		require.NotContains(t, text, adminToken)
	}
	_, err = Connect(t.TempDir(), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
