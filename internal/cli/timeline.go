package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// PrintJob writes one job for people: its row, what became of its runner, and where the time went.
func PrintJob(w io.Writer, format Format, job adminapi.Job, now time.Time) error {
	if err := Print(w, format, job, JobTable([]adminapi.Job{job}, now)); err != nil || job.Timeline == nil || format == FormatJSON || format == FormatYAML {
		return err
	}
	var b strings.Builder
	b.WriteByte('\n')
	took := map[string]adminapi.TimelinePhase{}
	for i, phase := range job.Timeline.Split { // the first step ends no phase
		took[job.Timeline.Steps[i+1].Name] = phase
	}
	table := tabwriter.NewWriter(&b, 0, 4, 3, ' ', 0)
	fmt.Fprintln(table, "STEP\tAT\tTOOK\tFOR")
	for _, step := range job.Timeline.Steps {
		spent, what := "-", ""
		if phase, ok := took[step.Name]; ok {
			spent, what = exact(time.Duration(phase.Seconds*float64(time.Second))), fleet.Phase(phase.Name).Words()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", step.Name, step.At.Local().Format("2006-01-02 15:04:05.000"), spent, what)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case job.RunnerLostAt != nil:
		fmt.Fprintf(&b, "\nIts pod was lost at %s, while it ran.\n", job.RunnerLostAt.Local().Format(time.DateTime))
	case job.ExitCode != nil && *job.ExitCode != 0:
		fmt.Fprintf(&b, "\nIts runner ended with exit code %d: `bullpen runners logs %s` shows its last lines.\n", *job.ExitCode, job.Pod)
	}
	if job.TraceID != "" {
		fmt.Fprintf(&b, "\nTrace %s\n", strings.TrimSpace(job.TraceID+" "+job.TraceURL))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// exact shows milliseconds of what is short.
func exact(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return short(d)
}
