package onebox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/cli/reach"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Client runs and cancels workflows at the stand-in of a `bullpen up` that another process runs, and reads the logs of their jobs.
type Client struct {
	github *standin.AdminClient
	dir    string // the state directory
	at     string // the stateFlag of commands that are printed
	report func(Event)
	pools  func(ctx context.Context) ([]fleet.LabelledPool, error)
	// running says whether the `bullpen up` still runs. While it does, a stand-in that cannot be reached is being restarted.
	running func() bool
}

// Connect reads what a running `bullpen up` has written into its state directory, with the token of the stand-in's administrators.
func Connect(stateDir string, report func(Event)) (*Client, error) {
	layout, err := NewLayout(stateDir)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(layout.statusFile())
	if err != nil {
		return nil, fmt.Errorf("reading the status of `bullpen up`: %w", err)
	}
	var where Where
	if err := json.Unmarshal(data, &where); err != nil {
		return nil, fmt.Errorf("reading the status of `bullpen up` in %s: %w", layout.Dir, err)
	}
	token, err := readSecret(layout.secret("admin-token"))
	if err != nil {
		return nil, err
	}
	return &Client{
		github: &standin.AdminClient{URL: where.GitHub, Token: token, HTTP: boundedClient()},
		dir:    layout.Dir, at: stateFlag(layout.Dir, usualStateDir()), report: report, running: where.Owner.Alive,
		pools: func(ctx context.Context) ([]fleet.LabelledPool, error) {
			config, err := clientcmd.BuildConfigFromFlags("", where.Kubeconfig)
			if err != nil {
				return nil, fmt.Errorf("reading the kubeconfig of `bullpen up`: %w", err)
			}
			list, err := labelledPools(config)
			if err != nil {
				return nil, err
			}
			return list(ctx)
		},
	}, nil
}

// RunOptions of Run.
type RunOptions struct {
	File WorkflowFile
	// Repository is owner/name; it is added to the stand-in if it is not there. Empty: the stand-in's own.
	Repository string
	// Event starts the run. Empty: workflow_dispatch or push, whichever the file lists, else its first event.
	Event  string
	Inputs map[string]string
	// Watch waits until the run has completed.
	Watch bool
}

// Run submits a workflow file, and reports the run and its jobs. With Watch it reports their changes until the run has completed, and returns its
// result; without, the result is empty.
func (c *Client) Run(ctx context.Context, opts RunOptions) (Result, error) {
	if opts.Repository == "" {
		opts.Repository = standInRepository
	}
	if err := c.addRepository(ctx, opts.Repository); err != nil {
		return Result{}, c.explain(err)
	}
	run, err := submitTo(ctx, c.github, standin.Submission{
		FileName: opts.File.Name, Content: opts.File.Content, Repo: opts.Repository, Event: opts.Event, Inputs: opts.Inputs,
	})
	if err != nil {
		return Result{}, c.explain(err)
	}
	c.report(Event{Kind: EventRun, Run: runChange(run), Message: fmt.Sprintf("Submitted %s to %s as run %d.", run.File, run.Repo, run.ID)})
	if warning := run.SecretsWarning(); warning != "" {
		c.report(Event{Kind: EventProblem, Message: warning})
	}
	f := follower{
		run: run.ID, ids: true, failed: c.lost, name: func(string) string { return "" },
		log: func(job int64) string { return logCommand(c.at, job) },
	}
	unserved := &unservedWatch{pools: c.pools, at: c.at}
	if opts.Watch {
		return c.watch(ctx, run, &f, unserved)
	}
	jobs, err := c.github.Jobs(ctx, run.ID, "")
	if err != nil {
		return Result{}, c.explain(err)
	}
	for _, event := range append(f.changes(jobs), c.stuck(ctx, unserved, jobs)...) {
		c.report(event)
	}
	c.report(Event{Kind: EventNote, Message: fmt.Sprintf("`bullpen jobs%s --watch` follows the jobs; `bullpen job ID --log%s` prints a log.", c.at, c.at)})
	return Result{}, nil
}

// watch reports changes of the run's jobs until it has completed.
func (c *Client) watch(ctx context.Context, run standin.RunView, f *follower, unserved *unservedWatch) (Result, error) {
	result, err := completion{github: c.github, follow: f, report: c.report, runs: []int64{run.ID}, stuck: func(ctx context.Context, jobs []standin.JobView) error {
		if events := c.stuck(ctx, unserved, jobs); len(events) > 0 {
			return errors.New(events[0].Message)
		}
		return nil
	}}.await(ctx)
	if errors.Is(err, errIncomplete) {
		return result, fmt.Errorf("%w. Run %d continues; `bullpen cancel --run %d%s` cancels it", err, run.ID, run.ID, c.at)
	}
	for _, done := range result.Runs {
		c.report(Event{Kind: EventRun, Run: runChange(done), Message: fmt.Sprintf("Run %d completed: %s.", done.ID, done.Conclusion)})
	}
	return result, err
}

// stuck are the queued jobs that neither a pool nor a self-registering runner serves.
func (c *Client) stuck(ctx context.Context, unserved *unservedWatch, jobs []standin.JobView) []Event {
	var events []Event
	for _, event := range unserved.look(ctx, jobs) {
		for _, job := range jobs {
			if job.ID == event.Job.ID && !registered(ctx, c.github, job) {
				events = append(events, event)
			}
		}
	}
	return events
}

func runChange(run standin.RunView) *RunChange {
	return &RunChange{ID: run.ID, Repository: run.Repo, File: run.File, Status: run.Status, Conclusion: run.Conclusion}
}

// addRepository adds a repository, and its account, if the stand-in does not have it.
func (c *Client) addRepository(ctx context.Context, name string) error {
	owner, short, _ := strings.Cut(name, "/")
	if owner == "" || short == "" || strings.Contains(short, "/") {
		return fmt.Errorf("--repo must be OWNER/NAME, got %q", name)
	}
	installations, err := c.github.Installations(ctx)
	if err != nil {
		return err
	}
	for _, account := range installations {
		for _, repository := range account.Repositories {
			if strings.EqualFold(account.Account+"/"+repository, name) {
				return nil
			}
		}
	}
	if _, err := c.github.Install(ctx, standin.Installation{Account: owner, Repositories: []string{short}}); err != nil {
		return err
	}
	c.report(Event{Kind: EventNote, Message: "added repository " + name + " to the stand-in for GitHub"})
	return nil
}

// CancelJob cancels a job as the stand-in can: a queued one at once, a running one by its runner. It returns a sentence about it.
func (c *Client) CancelJob(ctx context.Context, id int64) (string, error) {
	refused := c.github.CancelJob(ctx, id)
	if refused != nil && statusOf(refused) != http.StatusConflict {
		return "", c.notFound(refused, "job", id)
	}
	job, err := c.github.Job(ctx, id)
	switch {
	case err != nil:
		return "", c.notFound(err, "job", id)
	case refused != nil:
		return "", fmt.Errorf("job %d (%s) was not cancelled: it has completed with conclusion %s", id, job.Name, job.Conclusion)
	}
	return cancelledText(job), nil
}

// CancelRun cancels all jobs of a run, as GitHub does. It returns a sentence about each.
func (c *Client) CancelRun(ctx context.Context, id int64) (string, error) {
	if err := c.github.CancelRun(ctx, id); err != nil {
		if statusOf(err) == http.StatusConflict {
			return "", fmt.Errorf("run %d was not cancelled: it has completed", id)
		}
		return "", c.notFound(err, "run", id)
	}
	jobs, err := c.github.Jobs(ctx, id, "")
	if err != nil {
		return "", c.explain(err)
	}
	var says []string
	for _, job := range jobs {
		if job.Conclusion == "" || job.Conclusion == "cancelled" {
			says = append(says, cancelledText(job))
		}
	}
	return strings.Join(says, "\n"), nil
}

// cancelledText says how far the cancellation of a job is. Its runner ends a running one.
func cancelledText(job standin.JobView) string {
	if job.Status == "in_progress" {
		return fmt.Sprintf("Cancelling job %d (%s): its runner stops the current step, and runs steps with always() or cancelled().", job.ID, job.Name)
	}
	return fmt.Sprintf("Cancelled job %d (%s).", job.ID, job.Name)
}

// statusOf is the stand-in's status of a request that it refused; 0 of one that it did not get.
func statusOf(err error) int {
	var refusal *standin.AdminError
	if errors.As(err, &refusal) {
		return refusal.Status
	}
	return 0
}

// notFound names the job or run that the stand-in does not have.
func (c *Client) notFound(err error, what string, id int64) error {
	if statusOf(err) == http.StatusNotFound {
		return fmt.Errorf("%s %d not found. `bullpen jobs --completed -o wide%s` lists jobs and their runs", what, id, c.at)
	}
	return c.explain(err)
}

// explain says why the stand-in was not reached.
func (c *Client) explain(err error) error {
	var failure *url.Error
	switch {
	case !errors.As(err, &failure), errors.Is(err, context.Canceled):
		return err
	case !c.running():
		return c.stopped()
	}
	return fmt.Errorf("cannot reach the stand-in for GitHub: %s. It is restarted if it has exited: try again", reach.Problem(err))
}

// lost decides about a request of several that failed: the stand-in can be restarted, and resumes its runs.
func (c *Client) lost(err error) error {
	switch {
	case statusOf(err) != 0:
		return err
	case !c.running():
		return c.stopped()
	}
	return nil
}

func (c *Client) stopped() error {
	return fmt.Errorf("`bullpen up` in %s has stopped. Its next start resumes the runs", c.dir)
}
