package onebox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// WorkflowFile is a workflow that was read and checked.
type WorkflowFile struct {
	Name    string
	Content string
}

// LoadWorkflows reads workflow files and validates them like the stand-in, so that a mistake is reported before anything starts. The error has
// the file and the line.
func LoadWorkflows(paths []string) ([]WorkflowFile, error) {
	files := make([]WorkflowFile, 0, len(paths))
	for _, path := range paths {
		file, err := LoadWorkflow(path)
		if err != nil {
			return nil, fmt.Errorf("--workflow: %w", err)
		}
		files = append(files, file)
	}
	return files, nil
}

// LoadWorkflow is LoadWorkflows of one file.
func LoadWorkflow(path string) (WorkflowFile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return WorkflowFile{}, fmt.Errorf("reading the workflow file: %w", err)
	}
	if _, err := workflow.Load(path, content); err != nil {
		return WorkflowFile{}, fmt.Errorf("cannot run the workflow: %w", err) // of the path and the line
	}
	return WorkflowFile{Name: filepath.Base(path), Content: string(content)}, nil
}

// CheckSecrets verifies that a file of secrets can be used, and returns its absolute path; "" for none.
func CheckSecrets(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if _, err := standin.ReadSecrets(path); err != nil {
		return "", fmt.Errorf("--secrets-file: %w", err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--secrets-file: %w", err)
	}
	return absolute, nil
}

// submit queues a workflow's jobs at the stand-in, in its own repository.
func submit(ctx context.Context, github *standin.AdminClient, file WorkflowFile) (standin.RunView, error) {
	return submitTo(ctx, github, standin.Submission{FileName: file.Name, Content: file.Content, Repo: standInRepository})
}

// submitTo is submit with a repository, an event and inputs.
func submitTo(ctx context.Context, github *standin.AdminClient, submission standin.Submission) (standin.RunView, error) {
	runs, err := github.Submit(ctx, submission)
	if err != nil {
		return standin.RunView{}, fmt.Errorf("submitting %s: %w", submission.FileName, err)
	}
	if len(runs) != 1 {
		return standin.RunView{}, fmt.Errorf("submitting %s: %d runs were started, expected one", submission.FileName, len(runs))
	}
	return runs[0], nil
}

// follower turns readings of the list of jobs into changes.
type follower struct {
	seen map[int64]string
	// name is the name of a runner in messages; nil for its own.
	name func(runner string) string
	// unserved reports jobs that no pool serves; nil: nothing does.
	unserved *unservedWatch
	// run is the only one whose jobs are followed; 0: those of all.
	run int64
	// ids has messages begin with the job's ID.
	ids bool
	// log is the command that prints a job's log, for the message of a failed one; nil: it is not named.
	log func(job int64) string
	// failed decides about a reading that failed: an error ends the following. Nil: the next reading is awaited.
	failed func(error) error
}

// changes are the changes since the last reading, in the order of the jobs.
func (f *follower) changes(jobs []standin.JobView) []Event {
	if f.seen == nil {
		f.seen = map[int64]string{}
	}
	var events []Event
	for _, job := range jobs {
		state := job.Status
		if job.Conclusion != "" {
			state = job.Conclusion
		}
		if f.seen[job.ID] == state {
			continue
		}
		f.seen[job.ID] = state
		events = append(events, Event{Kind: EventJob, Message: f.sentence(job), Job: &JobChange{
			ID: job.ID, Name: job.Name, Status: job.Status, Conclusion: job.Conclusion, Runner: job.RunnerName,
		}})
	}
	return events
}

func (f *follower) sentence(job standin.JobView) string {
	name := fmt.Sprintf("job %-24s", job.Name)
	if f.ids {
		name = fmt.Sprintf("job %d  %-24s", job.ID, job.Name)
	}
	switch {
	case job.Conclusion != "" && job.StartedAt != nil && job.CompletedAt != nil:
		return fmt.Sprintf("%s %s after %s", name, job.Conclusion, short(job.CompletedAt.Sub(*job.StartedAt))) + f.logHint(job)
	case job.Conclusion == "failure" && job.Reason != "":
		return fmt.Sprintf("%s %s: %s", name, job.Conclusion, job.Reason)
	case job.Conclusion != "":
		return fmt.Sprintf("%s %s", name, job.Conclusion)
	case job.Status == "in_progress" && job.QueuedAt != nil && job.StartedAt != nil:
		return fmt.Sprintf("%s running%s after %s in the queue", name, f.on(job.RunnerName), short(job.StartedAt.Sub(*job.QueuedAt)))
	default:
		return fmt.Sprintf("%s %s", name, job.Status)
	}
}

// logHint says how to read the log of a failed job.
func (f *follower) logHint(job standin.JobView) string {
	if f.log == nil || job.Conclusion != "failure" {
		return ""
	}
	return ". Log: `" + f.log(job.ID) + "`"
}

// on names the runner of a running job, unless it has no name for the reader.
func (f *follower) on(runner string) string {
	if f.name != nil {
		runner = f.name(runner)
	}
	if runner == "" {
		return ""
	}
	return " on " + runner
}

// followInterval is the interval of reading jobs from the stand-in.
const followInterval = 250 * time.Millisecond

// follow reports changes of jobs until ctx ends, or until done says so of the newest reading. The stand-in can be unreachable for a while, when
// it restarts.
func (f *follower) follow(ctx context.Context, github *standin.AdminClient, report func(Event), done func(jobs []standin.JobView) (bool, error)) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		if jobs, err := github.Jobs(ctx, f.run, ""); err == nil {
			for _, event := range f.changes(jobs) {
				report(event)
			}
			if f.unserved != nil {
				for _, event := range f.unserved.look(ctx, jobs) {
					report(event)
				}
			}
			if finished, err := done(jobs); finished || err != nil {
				return err
			}
		} else if f.failed != nil && ctx.Err() == nil {
			if err := f.failed(err); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// UpOptions of Up.
type UpOptions struct {
	Options
	// Workflows are submitted to the stand-in once everything is up.
	Workflows []WorkflowFile
	// ExitWhenDone stops everything when the workflows have completed.
	ExitWhenDone bool
	// AtOnce ends the wait for running jobs of a Drain when it is closed. Nil: nothing does.
	AtOnce <-chan struct{}
}

// Up starts everything, submits the workflows, and keeps it running until ctx ends or, with ExitWhenDone, until the workflows have completed.
// Then it stops everything. The result is that of the workflows, and empty without ExitWhenDone.
func Up(ctx context.Context, opts UpOptions) (Result, error) {
	if len(opts.Workflows) > 0 && opts.App != nil {
		return Result{}, errors.New("--workflow needs the GitHub stand-in, and --github-app uses the real GitHub. Push to a repository that has the App installed instead")
	}
	box, err := Start(ctx, opts.Options)
	if err != nil {
		return Result{}, err
	}
	result, failed := box.serve(ctx, opts)
	if opts.Drain && failed == nil && !opts.ExitWhenDone {
		box.drain(context.WithoutCancel(ctx), opts.AtOnce)
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if running, err := box.Running(stopping); err == nil && running > 0 && len(result.Runs) == 0 {
		box.report(Event{Kind: EventNote, Message: stoppedJobs(running)})
	}
	return result, errors.Join(failed, box.Stop(stopping))
}

func stoppedJobs(running int) string {
	if running == 1 {
		return "1 running job will be stopped"
	}
	return fmt.Sprintf("%d running jobs will be stopped", running)
}

func (b *Box) serve(ctx context.Context, opts UpOptions) (Result, error) {
	if !opts.ExitWhenDone {
		b.guide()
	}
	if b.opts.App != nil {
		<-ctx.Done()
		return Result{}, nil
	}
	github, err := b.adminClient()
	if err != nil {
		return Result{}, err
	}
	pods, err := watchPods(ctx, b.kube, b.opts.Now)
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, nil
		}
		return Result{}, err
	}
	defer pods.close()
	labelled, err := labelledPools(b.plane.AdminConfig())
	if err != nil {
		return Result{}, err
	}
	at := stateFlag(b.layout.Dir, usualStateDir())
	f := follower{name: func(runner string) string { return podOf(pods.rows(), runner) }, unserved: &unservedWatch{pools: labelled, at: at}}
	if !opts.ExitWhenDone { // else the stand-in stops before its log can be read
		f.log = func(job int64) string { return logCommand(at, job) }
	}
	before, err := github.Jobs(ctx, 0, "")
	if err != nil && ctx.Err() == nil {
		return Result{}, fmt.Errorf("reading the jobs of earlier runs: %w", err)
	}
	f.changes(before) // are known
	dead, err := failDead(ctx, github, before, b.began)
	if err != nil && ctx.Err() == nil {
		return Result{}, err
	}
	if unfinished := countUnfinished(before); unfinished > 0 {
		b.report(Event{Kind: EventNote, Message: resuming(unfinished, dead)})
	}
	var runs []int64
	for _, file := range opts.Workflows {
		run, err := submit(ctx, github, file)
		if err != nil {
			return Result{}, err
		}
		b.report(Event{Kind: EventNote, Message: fmt.Sprintf("submitted %s as run %d", file.Name, run.ID)})
		if warning := run.SecretsWarning(); warning != "" {
			b.report(Event{Kind: EventProblem, Message: warning})
		}
		runs = append(runs, run.ID)
	}
	if opts.ExitWhenDone {
		result, err := b.untilDone(ctx, github, &f, runs)
		b.reportFailures(ctx, github, result)
		return result, err
	}
	b.report(Event{Kind: EventNote, Message: stopText(opts.Drain)})
	return Result{}, f.follow(ctx, github, b.report, func([]standin.JobView) (bool, error) { return false, nil })
}

// stopText says what Ctrl-C does.
func stopText(drain bool) string {
	if drain {
		return "Ctrl-C waits for running jobs, and stops everything then. Ctrl-C again does not wait."
	}
	return "Ctrl-C stops everything."
}

// reportFailures prints what failed before the stand-in, which has the logs, is stopped.
func (b *Box) reportFailures(ctx context.Context, github *standin.AdminClient, result Result) {
	for _, run := range result.Runs {
		jobs, err := github.Jobs(ctx, run.ID, "")
		if err != nil {
			return // the result is known
		}
		for _, line := range failedLogs(ctx, github, jobs) {
			b.report(Event{Kind: EventNote, Message: line})
		}
	}
}

// failDead fails the jobs that ran when the last run ended, and returns how many there were. Their runners were stopped with it, or before this
// one began. GitHub would wait for their silence, and the jobs would count towards their account's limits until then.
func failDead(ctx context.Context, github *standin.AdminClient, jobs []standin.JobView, began time.Time) (int, error) {
	dead := 0
	for _, job := range jobs {
		if job.Status != "in_progress" || job.StartedAt == nil || !job.StartedAt.Before(began) {
			continue
		}
		var answer *standin.AdminError
		err := github.LoseJob(ctx, job.ID)
		if errors.As(err, &answer) && answer.Status == http.StatusConflict { // it has completed since
			continue
		}
		if err != nil {
			return dead, fmt.Errorf("failing job %d of an earlier run: %w", job.ID, err)
		}
		dead++
	}
	return dead, nil
}

// resuming says what earlier runs have left. The dead jobs are some of the unfinished ones.
func resuming(unfinished, dead int) string {
	var texts []string
	if rest := unfinished - dead; rest > 0 {
		texts = append(texts, "resuming "+jobsOfEarlierRuns(rest, "unfinished"))
	}
	if dead > 0 {
		texts = append(texts, jobsOfEarlierRuns(dead, "running")+" failed, because their runners were stopped")
	}
	return strings.Join(texts, "; ")
}

func jobsOfEarlierRuns(n int, state string) string {
	if n == 1 {
		return "1 " + state + " job of earlier runs"
	}
	return fmt.Sprintf("%d %s jobs of earlier runs", n, state)
}

// guide says what to type next.
func (b *Box) guide() {
	where := b.Where()
	for _, line := range where.guide(usualStateDir()) {
		b.report(Event{Kind: EventNote, Message: line})
	}
}

// usualStateDir is the directory that commands use without --state-dir; empty if there is none, and every command names its directory.
func usualStateDir() string {
	usual, err := DefaultStateDir(os.Getenv, os.Geteuid() == 0)
	if err != nil {
		return ""
	}
	return usual
}

func countUnfinished(jobs []standin.JobView) int {
	done, _, _ := countJobs(jobs)
	return len(jobs) - done
}
