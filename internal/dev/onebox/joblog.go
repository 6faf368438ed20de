package onebox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// JobLog prints a job's log to out, step by step, and what there is to say about it to notes. With follow it waits for the job to start, and
// ends with the job, or with ctx, which is no error.
func (c *Client) JobLog(ctx context.Context, id int64, follow bool, out, notes io.Writer) error {
	opts := logOptions{follow: follow, out: out, notes: notes}
	printer := logPrinter{out: opts.out, have: map[int]int{}, ended: map[int]bool{}}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	waits := false
	for {
		view, err := c.github.StepLogs(ctx, id, printer.have)
		switch {
		case ctx.Err() != nil && opts.follow:
			return nil
		case err != nil && opts.follow && statusOf(err) == 0:
			if err := c.lost(err); err != nil {
				return err
			}
		case err != nil:
			return c.notFound(err, "job", id)
		default:
			if done, err := c.printLog(&printer, view, opts); done || err != nil {
				return err
			}
			if !waits && view.Job.Status != "in_progress" {
				waits = true
				fmt.Fprintf(opts.notes, "Job %d (%s) is %s. Waiting for it to start.\n", view.Job.ID, view.Job.Name, statusWord(view.Job))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

type logOptions struct {
	follow     bool
	out, notes io.Writer
}

// printLog prints what is new, and says whether that was all.
func (c *Client) printLog(printer *logPrinter, view standin.JobLogView, opts logOptions) (done bool, err error) {
	job := view.Job
	completed := job.Status == "completed"
	if completed && len(view.Steps) == 0 && view.Text == "" {
		return true, fmt.Errorf("job %d (%s) has no log: it completed with conclusion %s%s", job.ID, job.Name, job.Conclusion, reasonText(job))
	}
	if !opts.follow && job.Status != "completed" && job.Status != "in_progress" {
		return true, fmt.Errorf("job %d (%s) has no log yet: it is %s. `%s --follow` waits for it", job.ID, job.Name, statusWord(job), logCommand(c.at, job.ID))
	}
	if err := printer.print(view.Steps); err != nil {
		return true, err
	}
	if completed && view.Text != "" {
		if _, err := io.WriteString(opts.out, view.Text); err != nil {
			return true, fmt.Errorf("writing the log: %w", err)
		}
	}
	if completed && opts.follow {
		fmt.Fprintf(opts.notes, "Job %d (%s) completed: %s%s.\n", job.ID, job.Name, job.Conclusion, reasonText(job))
	}
	return completed || !opts.follow, nil
}

// statusWord is a job's state before it runs.
func statusWord(job standin.JobView) string {
	if job.Status == "waiting" {
		return "pending approval"
	}
	return job.Status
}

func reasonText(job standin.JobView) string {
	if job.Reason == "" {
		return ""
	}
	return " (" + job.Reason + ")"
}

// logPrinter prints what is new in the output of steps, each below its name.
type logPrinter struct {
	out   io.Writer
	have  map[int]int  // lines printed of each step, by its number
	ended map[int]bool // steps whose conclusion was printed
	last  int          // the step whose output was printed last
	began bool
}

// print prints the steps in their order. Lines of a step may arrive after the next one has begun.
func (p *logPrinter) print(steps []standin.StepLog) error {
	for _, step := range steps {
		_, known := p.have[step.Number]
		starts := !known && step.Status != "queued" && step.Conclusion != "skipped"
		if starts || len(step.Lines) > 0 {
			p.have[step.Number] += len(step.Lines)
			if err := p.write(step, known); err != nil {
				return err
			}
		}
		if failed := step.Conclusion != "" && step.Conclusion != "success"; failed && !p.ended[step.Number] {
			p.ended[step.Number] = true
			if _, err := fmt.Fprintf(p.out, "==> %s: %s\n", step.Name, step.Conclusion); err != nil {
				return fmt.Errorf("writing the log: %w", err)
			}
		}
	}
	return nil
}

func (p *logPrinter) write(step standin.StepLog, known bool) error {
	var text strings.Builder
	if !p.began || p.last != step.Number {
		text.WriteString("==> " + step.Name)
		if known {
			text.WriteString(" (continued)")
		}
		text.WriteByte('\n')
	}
	p.began, p.last = true, step.Number
	for _, line := range step.Lines {
		text.WriteString(line + "\n")
	}
	if _, err := io.WriteString(p.out, text.String()); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}

// Bounds of failedLogs.
const (
	failedJobs  = 5
	failedLines = 20
)

// failedLogs has the last lines of the failed steps of jobs, for readers who cannot ask for the logs afterwards.
func failedLogs(ctx context.Context, github *standin.AdminClient, jobs []standin.JobView) []string {
	var says []string
	found := 0
	for _, job := range jobs {
		if job.Conclusion != "failure" || job.StartedAt == nil || found == failedJobs {
			continue
		}
		found++
		view, err := github.StepLogs(ctx, job.ID, nil)
		if err != nil {
			continue // the result stands without it
		}
		for _, step := range view.Steps {
			if step.Conclusion == "failure" {
				says = append(says, failedStep(job.Name, step)...)
			}
		}
	}
	return says
}

func failedStep(job string, step standin.StepLog) []string {
	last := step.Lines[max(0, len(step.Lines)-failedLines):]
	says := []string{fmt.Sprintf("log of job %s, step %q, last %d lines:", job, step.Name, len(last))}
	for _, line := range last {
		says = append(says, "  "+line)
	}
	return says
}
