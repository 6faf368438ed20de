package onebox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// WorkflowFile is a workflow that was read and checked.
type WorkflowFile struct {
	Name    string
	Content string
}

// LoadWorkflows reads workflow files and checks them as the stand-in will, so that a mistake is told before anything
// is started. The error names file, line and what to change.
func LoadWorkflows(paths []string) ([]WorkflowFile, error) {
	files := make([]WorkflowFile, 0, len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading --workflow: %w", err)
		}
		if _, err := workflow.Load(path, content); err != nil {
			return nil, fmt.Errorf("--workflow %s cannot be run: %w", path, err)
		}
		files = append(files, WorkflowFile{Name: filepath.Base(path), Content: string(content)})
	}
	return files, nil
}

// submit queues a workflow's jobs at the stand-in.
func submit(ctx context.Context, github *standin.AdminClient, file WorkflowFile) (standin.RunView, error) {
	runs, err := github.Submit(ctx, standin.Submission{FileName: file.Name, Content: file.Content, Repo: standInRepository})
	if err != nil {
		return standin.RunView{}, fmt.Errorf("submitting %s: %w", file.Name, err)
	}
	if len(runs) != 1 {
		return standin.RunView{}, fmt.Errorf("submitting %s: %d runs were started instead of one", file.Name, len(runs))
	}
	return runs[0], nil
}

// follower turns looks at the list of jobs into changes.
type follower struct {
	seen map[int64]string
	// name is how a runner is called in sentences; nil for its own name.
	name func(runner string) string
	// unserved reports jobs that no pool serves; nil: nothing does.
	unserved *unservedWatch
}

// changes are what is new since the last look, in the order of the jobs.
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
	runner := job.RunnerName
	if f.name != nil {
		runner = f.name(runner)
	}
	switch {
	case job.Conclusion != "" && job.StartedAt != nil && job.CompletedAt != nil:
		return fmt.Sprintf("job %-24s %s after %s", job.Name, job.Conclusion, short(job.CompletedAt.Sub(*job.StartedAt)))
	case job.Conclusion != "":
		return fmt.Sprintf("job %-24s %s", job.Name, job.Conclusion)
	case job.Status == "in_progress" && job.QueuedAt != nil && job.StartedAt != nil:
		return fmt.Sprintf("job %-24s runs on %s, %s after it was queued", job.Name, runner, short(job.StartedAt.Sub(*job.QueuedAt)))
	default:
		return fmt.Sprintf("job %-24s %s", job.Name, job.Status)
	}
}

// followInterval is how often the stand-in is asked for news.
const followInterval = 250 * time.Millisecond

// follow reports changes of jobs until ctx ends. The stand-in may be away for a while, when it is being restarted.
func (f *follower) follow(ctx context.Context, github *standin.AdminClient, report func(Event)) {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		if jobs, err := github.Jobs(ctx, 0, ""); err == nil {
			for _, event := range f.changes(jobs) {
				report(event)
			}
			if f.unserved != nil {
				for _, event := range f.unserved.look(ctx, jobs) {
					report(event)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// UpOptions of Up.
type UpOptions struct {
	Options
	// Workflows are submitted to the stand-in once everything is up.
	Workflows []WorkflowFile
}

// Up brings everything up, submits the workflows, and keeps it up until ctx ends. Then it stops everything.
func Up(ctx context.Context, opts UpOptions) error {
	if len(opts.Workflows) > 0 && opts.App != nil {
		return errors.New("--workflow goes to the GitHub stand-in, and --github-app asks for the real GitHub: push to a repository that has the App installed instead")
	}
	box, err := Start(ctx, opts.Options)
	if err != nil {
		return err
	}
	failed := box.serve(ctx, opts.Workflows)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if running, err := box.Running(stopping); err == nil && running > 0 {
		box.report(Event{Kind: EventNote, Message: fmt.Sprintf("running right now, and ending with it: %s", jobCount(running))})
	}
	return errors.Join(failed, box.Stop(stopping))
}

func (b *Box) serve(ctx context.Context, workflows []WorkflowFile) error {
	if b.opts.App != nil {
		<-ctx.Done()
		return nil
	}
	github, err := b.adminClient()
	if err != nil {
		return err
	}
	pods, err := watchPods(ctx, b.kube, b.opts.Now)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer pods.close()
	labelled, err := b.labelledPools()
	if err != nil {
		return err
	}
	f := follower{name: func(runner string) string { return podOf(pods.rows(), runner) }, unserved: &unservedWatch{pools: labelled}}
	before, err := github.Jobs(ctx, 0, "")
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading the jobs of earlier runs: %w", err)
	}
	f.changes(before) // are known
	if waiting := countUnfinished(before); waiting > 0 {
		b.report(Event{Kind: EventNote, Message: fmt.Sprintf("not done yet, of earlier runs: %s", jobCount(waiting))})
	}
	for _, file := range workflows {
		run, err := submit(ctx, github, file)
		if err != nil {
			return err
		}
		b.report(Event{Kind: EventNote, Message: fmt.Sprintf("submitted %s as run %d", file.Name, run.ID)})
	}
	b.report(Event{Kind: EventNote, Message: "Ctrl-C stops everything."})
	f.follow(ctx, github, b.report)
	return nil
}

func countUnfinished(jobs []standin.JobView) int {
	done, _, _ := countJobs(jobs)
	return len(jobs) - done
}
