package onebox

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Restart is a replacement of one of our processes while jobs ran.
type Restart struct {
	Replacement
	// Running is how many jobs ran when the process was ended.
	Running int `json:"running"`
}

// Evidence is everything the verdict on a demonstration rests on.
type Evidence struct {
	// Jobs as GitHub has them at the end.
	Jobs []standin.JobView
	// WantJobs is how many the workflow has.
	WantJobs int
	// Expected is the conclusion that a job must have, by its key; "skipped" means that no runner may see it.
	Expected func(key string) string
	// Removals are the pods that were deleted, as a watch saw it.
	Removals []Removal
	// Restarts that were done, and the parts that should have been restarted, in order.
	Restarts     []Restart
	WantRestarts []string
	// Changes that were made to the fleet, and those that should have been, in order.
	Changes     []Change
	WantChanges []string
	// Runners are the sizes of the pools, by label.
	Runners map[string]int
	// Left are processes that remain.
	Left []childproc.Process
	// Containers says that runners were containers, and Remains lists what is left of their node: mounts, cgroups, files, processes.
	Containers bool
	Remains    []string
}

// Verdict is what the evidence says.
type Verdict struct {
	// Problems are sentences; none: it passed.
	Problems []string `json:"problems"`
	// Killed counts jobs whose pod was deleted, or whose runner was lost, while they ran.
	Killed int `json:"killedMidJob"`
	// Conclusions counts jobs by conclusion; AsExpected those that ran as often as they should and ended as they should.
	Conclusions map[string]int `json:"conclusions"`
	AsExpected  int            `json:"asExpected"`
	Jobs        int            `json:"jobs"`
	// Wait is from queued to started of every job; Warm of those for which a runner was free at once.
	Wait Percentiles `json:"queueToStart"`
	Warm Percentiles `json:"queueToStartWarm"`

	Restarts []Restart           `json:"restarts"`
	Changes  []Change            `json:"changes"`
	Left     []childproc.Process `json:"left"`
	// Containers says that runners were containers; Remains is what is left of their node.
	Containers bool     `json:"containers,omitempty"`
	Remains    []string `json:"remains,omitempty"`
}

// Passed reports whether there is no problem.
func (v Verdict) Passed() bool { return len(v.Problems) == 0 }

// Percentiles of a set of durations, by nearest rank; zero for an empty one.
type Percentiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
}

func percentiles(durations []time.Duration) Percentiles {
	sorted := slices.Sorted(slices.Values(durations))
	return Percentiles{Count: len(sorted), P50: stats.Quantile(sorted, 0.50), P99: stats.Quantile(sorted, 0.99), Max: stats.Quantile(sorted, 1)}
}

// Judge is a pure function of the evidence.
func Judge(e Evidence) Verdict {
	if e.Left == nil {
		e.Left = []childproc.Process{} // an empty list in JSON
	}
	v := Verdict{Conclusions: map[string]int{}, Jobs: len(e.Jobs), Restarts: e.Restarts, Changes: e.Changes, Left: e.Left, Problems: []string{}, Containers: e.Containers, Remains: e.Remains}
	problem := func(format string, args ...any) { v.Problems = append(v.Problems, fmt.Sprintf(format, args...)) }

	killed := killedJobs(e)
	v.Killed = len(killed)
	for _, job := range e.Jobs {
		v.Conclusions[conclusionOf(job)]++
		wrong := jobProblem(job, e.Expected(job.Key))
		if wrong == "" {
			v.AsExpected++
		} else {
			problem("job %q %s", job.Name, wrong)
		}
		if how, was := killed[job.ID]; was {
			problem("job %q was killed: %s", job.Name, how)
		}
	}
	if len(e.Jobs) != e.WantJobs {
		problem("the workflow has %d jobs, but %d were seen", e.WantJobs, len(e.Jobs))
	}
	for i, part := range e.WantRestarts {
		if i >= len(e.Restarts) || e.Restarts[i].Part != part {
			problem("the %s was not restarted while jobs ran", partName(part))
		}
	}
	for _, restart := range e.Restarts {
		if restart.Running == 0 {
			problem("the %s was restarted when no job ran", partName(restart.Part))
		}
	}
	for i, kind := range e.WantChanges {
		if i >= len(e.Changes) || e.Changes[i].Kind != kind {
			problem("not done while jobs ran: %s", changeName(kind))
		}
	}
	for _, change := range e.Changes {
		if change.Running == 0 {
			problem("done when no job ran: %s", changeName(change.Kind))
		}
	}
	for _, p := range e.Left {
		problem("process %d (%s) is left", p.PID, p.Name)
	}
	for _, what := range e.Remains {
		problem("left of the node: %s", what)
	}
	v.Wait, v.Warm = queueToStart(e.Jobs, e.Runners)
	return v
}

func conclusionOf(job standin.JobView) string {
	if job.Conclusion == "" {
		return "unfinished"
	}
	return job.Conclusion
}

// jobProblem says what is wrong with a job, or nothing.
func jobProblem(job standin.JobView, expected string) string {
	wantRuns := 1
	if expected == "skipped" {
		wantRuns = 0
	}
	switch {
	case job.Conclusion == "":
		return "did not complete: it is " + job.Status
	case job.Acquisitions != wantRuns:
		return fmt.Sprintf("ran %d times, not %d", job.Acquisitions, wantRuns)
	case job.Conclusion != expected:
		reason := ""
		if job.Reason != "" {
			reason = " (" + job.Reason + ")"
		}
		return fmt.Sprintf("concluded with %s%s, expected %s", job.Conclusion, reason, expected)
	default:
		return ""
	}
}

// killedJobs are the jobs that did not get to their end, and how that was seen: the pod was deleted while its runner had
// an unfinished job, or GitHub lost the runner.
func killedJobs(e Evidence) map[int64]string {
	killed := map[int64]string{}
	byPod := map[string][]standin.JobView{}
	for _, job := range e.Jobs {
		if job.Lost {
			killed[job.ID] = "its runner " + job.RunnerName + " was lost"
		}
		if uid, ours := runnerpod.PodUID(job.RunnerName); ours {
			byPod[uid] = append(byPod[uid], job)
		}
	}
	for _, removal := range e.Removals {
		for _, job := range byPod[removal.UID] {
			if ranAt(job, removal.Seen) {
				killed[job.ID] = "its pod " + removal.Pod + " was deleted while it ran"
			}
		}
	}
	return killed
}

// ranAt reports whether the job had started and not ended at that time.
func ranAt(job standin.JobView, at time.Time) bool {
	return job.StartedAt != nil && !job.StartedAt.After(at) && (job.CompletedAt == nil || job.CompletedAt.After(at))
}

// queueToStart measures by GitHub's own clock. A job counts as warm when fewer jobs than runners were ahead of it and
// unfinished at the moment it was queued, of those with its label.
func queueToStart(jobs []standin.JobView, runners map[string]int) (all, warm Percentiles) {
	var every, served []time.Duration
	for i, job := range jobs {
		if job.QueuedAt == nil || job.StartedAt == nil {
			continue
		}
		wait := job.StartedAt.Sub(*job.QueuedAt)
		every = append(every, wait)
		ahead := 0
		for j, other := range jobs {
			if i == j || runsOn(other) != runsOn(job) || other.QueuedAt == nil || other.StartedAt == nil || other.QueuedAt.After(*job.QueuedAt) || (other.QueuedAt.Equal(*job.QueuedAt) && j > i) {
				continue
			}
			if other.CompletedAt == nil || other.CompletedAt.After(*job.QueuedAt) {
				ahead++
			}
		}
		if ahead < runners[runsOn(job)] {
			served = append(served, wait)
		}
	}
	return percentiles(every), percentiles(served)
}

// runsOn is the label that brings the job to its pool.
func runsOn(job standin.JobView) string {
	if len(job.Labels) == 0 {
		return ""
	}
	return job.Labels[0]
}

// Print writes the verdict for people.
func (v Verdict) Print(out io.Writer, jobs []standin.JobView) {
	fmt.Fprintf(out, "\nSummary\n")
	for _, line := range jobLines(jobs) {
		fmt.Fprintf(out, "  %s\n", line)
	}
	fmt.Fprintf(out, "\n  jobs            %d, %d as expected (%s)\n", v.Jobs, v.AsExpected, countsText(v.Conclusions))
	fmt.Fprintf(out, "  queue time      p50 %s, p99 %s with an idle runner (%d jobs); p50 %s, p99 %s for all (%d jobs)\n",
		short(v.Warm.P50), short(v.Warm.P99), v.Warm.Count, short(v.Wait.P50), short(v.Wait.P99), v.Wait.Count)
	for _, r := range v.Restarts {
		fmt.Fprintf(out, "  restarted       %-11s %s, pid %d → %d, ready after %s, with %s running\n",
			partName(r.Part), r.Signal, r.OldPID, r.NewPID, short(r.Took), jobCount(r.Running))
	}
	for _, c := range v.Changes {
		fmt.Fprintf(out, "  changed         %s: %s %s, with %s running\n", changeName(c.Kind), changeDone(c.Kind), short(c.Took), jobCount(c.Running))
	}
	if len(v.Left) == 0 {
		fmt.Fprintf(out, "  processes left  0\n")
	}
	if v.Containers && len(v.Remains) == 0 {
		fmt.Fprintf(out, "  of the node     0 mounts, cgroups, links or files left\n")
	}
	fmt.Fprintf(out, "  killed mid-job: %d\n\n", v.Killed)
	if v.Passed() {
		fmt.Fprintln(out, "PASSED: each job ran exactly once with the expected conclusion, and no busy pod was deleted.")
		return
	}
	fmt.Fprintln(out, "FAILED:")
	const shown = 20
	for i, problem := range v.Problems {
		if i == shown {
			fmt.Fprintf(out, "  … and %d more\n", len(v.Problems)-shown)
			break
		}
		fmt.Fprintf(out, "  %s\n", problem)
	}
}

// jobLines are the conclusions of all jobs, the instances of one matrix in one line.
func jobLines(jobs []standin.JobView) []string {
	type group struct {
		id     string
		counts map[string]int
		total  int
	}
	var groups []*group
	for _, job := range jobs {
		id, _, _ := strings.Cut(job.Key, "/")
		at := slices.IndexFunc(groups, func(g *group) bool { return g.id == id })
		if at < 0 {
			groups = append(groups, &group{id: id, counts: map[string]int{}})
			at = len(groups) - 1
		}
		groups[at].counts[conclusionOf(job)]++
		groups[at].total++
	}
	lines := make([]string, 0, len(groups))
	for _, g := range groups {
		name := g.id
		if g.total > 1 {
			name = fmt.Sprintf("%s (%d jobs)", g.id, g.total)
		}
		lines = append(lines, fmt.Sprintf("%-22s %s", name, countsText(g.counts)))
	}
	return lines
}

// countsText is "20 success, 1 failure", in a fixed order; a single one is just its word.
func countsText(counts map[string]int) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	order := []string{"success", "failure", "cancelled", "skipped"}
	rank := func(name string) int {
		if at := slices.Index(order, name); at >= 0 {
			return at
		}
		return len(order)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	if len(names) == 1 && counts[names[0]] == 1 {
		return names[0]
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(parts, ", ")
}

func jobCount(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// short rounds a duration to what a reader cares for.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
