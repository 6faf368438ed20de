package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// PrintJob writes one job for people: its row, how long each phase took, and how its runner exited. flags are those that other commands need to
// reach the same server (Connection.Again).
func PrintJob(w io.Writer, o *Output, job adminapi.Job, now time.Time, flags string) error {
	if err := JobRows(now).PrintOne(w, o, job); err != nil || job.Timeline == nil || !o.ForPeople() {
		return err
	}
	var b strings.Builder
	b.WriteByte('\n')
	table := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	fmt.Fprintln(table, "PHASE\tTIME\tDURATION\tDETAIL")
	for i, step := range job.Timeline.Steps {
		spent, what := "-", ""
		if i > 0 && i <= len(job.Timeline.Split) { // the first step ends no phase
			phase := job.Timeline.Split[i-1]
			spent, what = duration(time.Duration(phase.Seconds*float64(time.Second)), phase.WholeSeconds), fleet.Phase(phase.Name).Words()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", stepWords(step.Name), moment(step), spent, what)
	}
	if open := job.Timeline.Open; open != nil {
		fmt.Fprintf(table, "%s\tnow\t%s\t%s, so far\n", StateOf(job), whole(now.Sub(open.Since)), fleet.Phase(open.Name).Words())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case job.RunnerLostAt != nil:
		fmt.Fprintf(&b, "\nThe runner was lost at %s, with the job running.\n", job.RunnerLostAt.Local().Format(time.DateTime))
	case job.ExitCode != nil && *job.ExitCode != 0:
		fmt.Fprintf(&b, "\nThe runner exited with %s. See its last log lines: `bullpen runners logs %s%s`\n", adminapi.ExitCode(*job.ExitCode), job.Pod, flags)
	}
	switch {
	case job.URL != "":
		fmt.Fprintf(&b, "\nGitHub   %s\n", job.URL)
	case job.StartedAt != nil: // at a stand-in, which has no pages
		fmt.Fprintf(&b, "\nLog      bullpen job %d --log%s\n", job.ID, flags)
	}
	if job.TraceID != "" {
		fmt.Fprintf(&b, "\nTrace    %s\n", strings.TrimSpace(job.TraceID+" "+job.TraceURL))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// stepWords is what people call a step; one of a later release keeps its name.
func stepWords(name string) string { return cmp.Or(fleet.Step(name).Words(), name) }

// moment is when a step was taken: to the millisecond, or to the second where GitHub gives no more.
func moment(step adminapi.TimelineStep) string {
	if step.WholeSeconds {
		return step.At.Local().Format(time.DateTime)
	}
	return step.At.Local().Format("2006-01-02 15:04:05.000")
}

// duration shows milliseconds of short durations, unless it is known to the second only.
func duration(d time.Duration, wholeSeconds bool) string {
	switch {
	case wholeSeconds && d < time.Second:
		return "<1s"
	case wholeSeconds:
		return whole(d.Round(time.Second))
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	}
	return short(d)
}
