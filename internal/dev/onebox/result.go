package onebox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// Result is how the workflows of `bullpen up --exit-when-done` concluded.
type Result struct{ Runs []standin.RunView }

// Exit codes of a result. 1 is for what failed around the workflows.
const (
	exitSucceeded = 0
	exitFailed    = 2
	exitCancelled = 3
)

// ExitCode is 0 if all runs succeeded or were skipped, 2 if one failed, and 3 if none failed and one was cancelled.
func (r Result) ExitCode() int {
	code := exitSucceeded
	for _, run := range r.Runs {
		switch run.Conclusion {
		case "success", "skipped", "neutral":
		case "cancelled":
			code = max(code, exitCancelled)
		default:
			return exitFailed
		}
	}
	return code
}

// String names the runs that did not succeed.
func (r Result) String() string {
	var names []string
	for _, run := range r.Runs {
		if (Result{Runs: []standin.RunView{run}}).ExitCode() != exitSucceeded {
			names = append(names, fmt.Sprintf("%s (run %d): %s", run.File, run.ID, run.Conclusion))
		}
	}
	return strings.Join(names, ", ")
}

// errIncomplete says that the workflows had not completed when `bullpen up --exit-when-done` was interrupted.
var errIncomplete = errors.New("interrupted before the workflows completed")

// untilDone follows the runs until all have completed. A job that no runner can take is an error: its run would never complete.
func (b *Box) untilDone(ctx context.Context, github *standin.AdminClient, f *follower, ids []int64) (Result, error) {
	return completion{github: github, follow: f, report: b.report, runs: ids, stuck: func(ctx context.Context, jobs []standin.JobView) error {
		if job := unserved(jobs, ids, b.opts.Pools); job != nil && !registered(ctx, github, *job) {
			return fmt.Errorf("job %q has runs-on: %s, and no pool has these labels. Pools: %s", job.Name, runsOnText(job.Labels), poolsText(b.opts.Pools))
		}
		return nil
	}}.await(ctx)
}

// completion is how to wait for runs.
type completion struct {
	github *standin.AdminClient
	follow *follower
	report func(Event)
	runs   []int64
	// stuck is an error about a job of the runs that no runner can take.
	stuck func(ctx context.Context, jobs []standin.JobView) error
}

// await follows the runs until all have completed. The error is errIncomplete when ctx ends before.
func (c completion) await(ctx context.Context) (Result, error) {
	var result Result
	err := c.follow.follow(ctx, c.github, c.report, func(jobs []standin.JobView) (bool, error) {
		runs, err := c.github.Runs(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // it restarts; the next reading is soon
		}
		if runs = concluded(runs, c.runs); runs == nil {
			return false, c.stuck(ctx, jobs)
		}
		// The last job may have completed since jobs were read.
		if jobs, err = c.github.Jobs(ctx, c.follow.run, ""); err != nil {
			return false, nil //nolint:nilerr // as above
		}
		for _, event := range c.follow.changes(jobs) {
			c.report(event)
		}
		result.Runs = runs
		return true, nil
	})
	if err == nil && result.Runs == nil {
		err = errIncomplete
	}
	return result, err
}

// concluded are the runs of these ids once all have completed; nil before.
func concluded(runs []standin.RunView, ids []int64) []standin.RunView {
	var found []standin.RunView
	for _, run := range runs {
		if slices.Contains(ids, run.ID) && run.Conclusion != "" {
			found = append(found, run)
		}
	}
	if len(found) < len(ids) {
		return nil
	}
	return found
}

// unserved is the first queued job of these runs with a label that no pool has; nil if there is none.
func unserved(jobs []standin.JobView, runs []int64, pools []*unstructured.Unstructured) *standin.JobView {
	for i, job := range jobs {
		if job.Status != "queued" || !slices.Contains(runs, job.RunID) {
			continue
		}
		served := slices.ContainsFunc(pools, func(pool *unstructured.Unstructured) bool { return covers(labelsOf(pool), job.Labels) })
		if !served {
			return &jobs[i]
		}
	}
	return nil
}

// covers says whether runners with the first labels take jobs with the second. GitHub compares labels without regard to case.
func covers(has, wants []string) bool {
	for _, label := range wants {
		if !slices.ContainsFunc(has, func(own string) bool { return strings.EqualFold(own, label) }) {
			return false
		}
	}
	return true
}

// registered says whether a runner at the stand-in can take a job: self-registering runners belong to no pool. If it cannot be read, one may.
func registered(ctx context.Context, github *standin.AdminClient, job standin.JobView) bool {
	runners, err := github.Runners(ctx)
	return err != nil || slices.ContainsFunc(runners, func(runner standin.RunnerView) bool { return covers(runner.Labels, job.Labels) })
}

func poolsText(pools []*unstructured.Unstructured) string {
	var names []string
	for _, pool := range pools {
		names = append(names, pool.GetName()+" "+runsOnText(labelsOf(pool)))
	}
	return strings.Join(names, ", ")
}
