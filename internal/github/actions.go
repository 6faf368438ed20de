package github

import (
	"context"
	"fmt"
	"time"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	opJob     = "reading a job"
	opRun     = "reading a workflow run"
	opRuns    = "listing workflow runs"
	opRunJobs = "listing the jobs of a run"
	opRerun   = "asking for a job to be run again"
	opReadRun = "reading the repository's runs"
)

// Statuses of a Run in which some of its jobs may be queued.
const (
	RunQueued     = "queued"
	RunInProgress = "in_progress"
	RunCompleted  = "completed"
)

// Run is one run of a workflow, as GitHub sees it now.
type Run struct {
	ID        int64
	Attempt   int64
	Status    string
	CreatedAt time.Time
	// Repository as the run itself names it: the one that was asked for may have been renamed. Empty where GitHub does not say.
	Repository fleet.Repository
}

// repositoryScope checks "owner/name", which becomes a part of the path.
func repositoryScope(name, repository string) (fleet.Scope, error) {
	scope, err := fleet.ParseScope(repository)
	if err != nil || scope.Repo == "" {
		return fleet.Scope{}, fmt.Errorf("%s: %w: %q is not owner/repository", name, fleet.ErrRejected, repository)
	}
	return scope, checkScope(name, scope)
}

// Job reads a job of a repository as GitHub sees it now, under the repository's present name. ErrNotFound proves that the
// job is gone only beside a successful ReadRuns of the same repository.
func (c *Client) Job(ctx context.Context, installationID int64, repository fleet.Repository, jobID int64) (job WorkflowJob, err error) {
	scope, err := repositoryScope(opJob, repository.Name)
	if err != nil {
		return WorkflowJob{}, err
	}
	err = c.whereItIs(ctx, installationID, scope.Of(repository.ID), notThere, func(ctx context.Context, scope fleet.Scope) (err error) {
		job, err = c.jobIn(ctx, installationID, scope, jobID)
		return err
	})
	return job, err
}

func (c *Client) jobIn(ctx context.Context, installationID int64, scope fleet.Scope, jobID int64) (WorkflowJob, error) {
	var found *gh.WorkflowJob
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		found, resp, err = api.Actions.GetWorkflowJobByID(ctx, scope.Owner, scope.Repo, jobID)
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opJob, classRead, nil, do); err != nil {
		return WorkflowJob{}, err
	}
	if found.GetID() != jobID {
		return WorkflowJob{}, fmt.Errorf("%s: %w: the response is about another job", opJob, fleet.ErrUncertain)
	}
	return workflowJob(found), nil
}

func workflowJob(from *gh.WorkflowJob) WorkflowJob {
	job := WorkflowJob{
		ID: from.GetID(), RunID: from.GetRunID(), RunAttempt: from.GetRunAttempt(), Name: from.GetName(),
		WorkflowName: from.GetWorkflowName(), HeadBranch: from.GetHeadBranch(), HeadSHA: from.GetHeadSHA(),
		Labels: from.Labels, Status: from.GetStatus(), Conclusion: from.GetConclusion(),
		RunnerID: from.GetRunnerID(), RunnerName: from.GetRunnerName(), CreatedAt: from.GetCreatedAt().Time,
		StartedAt: from.GetStartedAt().Time, CompletedAt: from.GetCompletedAt().Time,
	}
	job.clean()
	return job
}

// Runs lists a page of a repository's runs that have that status, newest first. next is zero on the last page. Runs
// that appear and disappear in between shift the pages.
func (c *Client) Runs(
	ctx context.Context, installationID int64, repository, status string, page int,
) (list []Run, next int, err error) {
	scope, err := repositoryScope(opRuns, repository)
	if err != nil {
		return nil, 0, err
	}
	return c.runPage(ctx, installationID, opRuns, scope, &gh.ListWorkflowRunsOptions{
		Status: status, ExcludePullRequests: true, ListOptions: gh.ListOptions{Page: page, PerPage: pageSize},
	})
}

// ReadRuns proves that the repository's runs and jobs are readable just now: the witness beside which a job that is not
// found is gone.
func (c *Client) ReadRuns(ctx context.Context, installationID int64, repository fleet.Repository) error {
	scope, err := repositoryScope(opReadRun, repository.Name)
	if err != nil {
		return err
	}
	return c.whereItIs(ctx, installationID, scope.Of(repository.ID), witness, func(ctx context.Context, scope fleet.Scope) error {
		_, _, err := c.runPage(ctx, installationID, opReadRun, scope, &gh.ListWorkflowRunsOptions{
			ExcludePullRequests: true, ListOptions: gh.ListOptions{PerPage: 1},
		})
		return err
	})
}

func (c *Client) runPage(
	ctx context.Context, installationID int64, name string, scope fleet.Scope, options *gh.ListWorkflowRunsOptions,
) (list []Run, next int, err error) {
	var runs *gh.WorkflowRuns
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		runs, resp, err = api.Actions.ListRepositoryWorkflowRuns(ctx, scope.Owner, scope.Repo, options)
		if resp != nil {
			next = resp.NextPage
		}
		return resp, err
	}
	of := classSweep
	if name == opReadRun {
		of = classRead // a witness
	}
	if err := c.asInstallation(ctx, installationID, name, of, nil, do); err != nil {
		return nil, 0, err
	}
	if runs == nil || runs.WorkflowRuns == nil { // an empty body must not read as "no runs"
		return nil, 0, fmt.Errorf("%s: %w: the response has no list", name, fleet.ErrUncertain)
	}
	for _, one := range runs.WorkflowRuns {
		list = append(list, run(one))
	}
	return list, next, nil
}

func run(from *gh.WorkflowRun) Run {
	return Run{
		ID: from.GetID(), Attempt: int64(from.GetRunAttempt()), Status: clean(from.GetStatus()), CreatedAt: from.GetCreatedAt().Time,
		Repository: fleet.Repository{Name: clean(from.GetRepository().GetFullName()), ID: from.GetRepository().GetID()},
	}
}

// RunJobs lists a page of the jobs of a run's latest attempt. next is zero on the last page.
func (c *Client) RunJobs(
	ctx context.Context, installationID int64, repository string, runID int64, page int,
) (list []WorkflowJob, next int, err error) {
	scope, err := repositoryScope(opRunJobs, repository)
	if err != nil {
		return nil, 0, err
	}
	options := &gh.ListWorkflowJobsOptions{Filter: "latest", ListOptions: gh.ListOptions{Page: page, PerPage: pageSize}}
	var jobs *gh.Jobs
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		jobs, resp, err = api.Actions.ListWorkflowJobs(ctx, scope.Owner, scope.Repo, runID, options)
		if resp != nil {
			next = resp.NextPage
		}
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opRunJobs, classSweep, nil, do); err != nil {
		return nil, 0, err
	}
	if jobs == nil || jobs.Jobs == nil {
		return nil, 0, fmt.Errorf("%s: %w: the response has no list", opRunJobs, fleet.ErrUncertain)
	}
	for _, one := range jobs.Jobs {
		list = append(list, workflowJob(one))
	}
	return list, next, nil
}

// Run reads a run.
func (c *Client) Run(ctx context.Context, installationID int64, repository string, runID int64) (Run, error) {
	scope, err := repositoryScope(opRun, repository)
	if err != nil {
		return Run{}, err
	}
	var found *gh.WorkflowRun
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		found, resp, err = api.Actions.GetWorkflowRunByID(ctx, scope.Owner, scope.Repo, runID)
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opRun, classRead, nil, do); err != nil {
		return Run{}, err
	}
	if found.GetID() != runID {
		return Run{}, fmt.Errorf("%s: %w: the response is about another run", opRun, fleet.ErrUncertain)
	}
	return run(found), nil
}

// RerunJob asks GitHub to run a job again, and the jobs that need it, as a new attempt of its run with new job ids. GitHub
// refuses it (ErrForbidden or ErrRejected) until the whole run has completed. ErrUncertain: it may have been accepted.
func (c *Client) RerunJob(ctx context.Context, installationID int64, repository string, jobID int64) error {
	scope, err := repositoryScope(opRerun, repository)
	if err != nil {
		return err
	}
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		return api.Actions.RerunJobByID(ctx, scope.Owner, scope.Repo, jobID)
	}
	return c.asInstallation(ctx, installationID, opRerun, classRead, nil, do)
}

// RerunFailedJobs asks GitHub to run every failed job of a run again, and the jobs that need them, as one new attempt. If
// one of them was run again alone, GitHub takes the others for an earlier attempt's. Refusals are those of RerunJob.
func (c *Client) RerunFailedJobs(ctx context.Context, installationID int64, repository string, runID int64) error {
	scope, err := repositoryScope(opRerun, repository)
	if err != nil {
		return err
	}
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		return api.Actions.RerunFailedJobsByID(ctx, scope.Owner, scope.Repo, runID)
	}
	return c.asInstallation(ctx, installationID, opRerun, classRead, nil, do)
}
