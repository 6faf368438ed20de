package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// stepNames are the words for the steps of the API's timeline.
var stepNames = map[string]string{"claimed": "assigned", "minted": "registered", "acknowledged": "configured", "executing": "running", "ended": "completed"}

// githubSteps are in whole seconds of GitHub's clock. With milliseconds a step could seem to precede the one before it.
var githubSteps = map[string]bool{"queued": true, "executing": true, "running": true, "ended": true, "completed": true}

// PrintJob writes one job for people: its row, how long each phase took, and how its runner exited.
func PrintJob(w io.Writer, format Format, job adminapi.Job, now time.Time) error {
	if err := Print(w, format, job, JobTable([]adminapi.Job{job}, now)); err != nil || job.Timeline == nil || format == FormatJSON || format == FormatYAML {
		return err
	}
	var b strings.Builder
	b.WriteByte('\n')
	took := map[string]adminapi.TimelinePhase{}
	for i, phase := range job.Timeline.Split { // no phase ends with the first step
		took[job.Timeline.Steps[i+1].Name] = phase
	}
	table := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	fmt.Fprintln(table, "PHASE\tTIME\tDURATION\tDETAIL")
	for _, step := range job.Timeline.Steps {
		spent, what := "-", ""
		if phase, ok := took[step.Name]; ok {
			spent, what = exact(time.Duration(phase.Seconds*float64(time.Second))), fleet.Phase(phase.Name).Words()
		}
		layout := "2006-01-02 15:04:05.000"
		if githubSteps[step.Name] {
			layout = time.DateTime
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", cmp.Or(stepNames[step.Name], step.Name), step.At.Local().Format(layout), spent, what)
	}
	if job.StartedAt == nil && job.CompletedAt == nil {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", StateOf(job), "now", waited(job, now), "so far")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case job.RunnerLostAt != nil:
		fmt.Fprintf(&b, "\nThe runner was lost at %s, with the job running.\n", job.RunnerLostAt.Local().Format(time.DateTime))
	case job.ExitCode != nil && *job.ExitCode != 0:
		fmt.Fprintf(&b, "\nThe runner exited with code %d%s. See its last log lines: `bullpen runners logs %s`\n", *job.ExitCode, signalName(*job.ExitCode), job.Pod)
	}
	if job.TraceID != "" {
		fmt.Fprintf(&b, "\nTrace %s\n", strings.TrimSpace(job.TraceID+" "+job.TraceURL))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// signalName names the signal of an exit code of 128 and more, as shells and container runtimes encode it.
func signalName(code int32) string {
	if name := unix.SignalName(syscall.Signal(code - 128)); code > 128 && name != "" {
		return " (" + name + ")"
	}
	return ""
}

// exact shows milliseconds of short durations.
func exact(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return short(d)
}
