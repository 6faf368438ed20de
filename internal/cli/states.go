package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// JobState is the state of a job in the words of this command line.
type JobState string

// The states. A completed job is shown with its conclusion instead.
const (
	JobPendingApproval JobState = "pending approval"
	JobQueued          JobState = "queued"
	JobBlocked         JobState = "blocked"   // a limit, a suspension, a paused pool or GitHub holds it back
	JobNoPool          JobState = "no pool"   // no pool serves its labels
	JobElsewhere       JobState = "elsewhere" // the same, and GitHub's own runners or another fleet's do
	JobAssigned        JobState = "assigned"  // a runner was chosen
	JobRunning         JobState = "running"
	JobCompleted       JobState = "completed"
)

// JobStateNames are the values of --state.
func JobStateNames() []string {
	names := make([]string, len(jobStates))
	for i, s := range jobStates {
		names[i] = string(s.state)
	}
	return names
}

// jobStates are the states in the order of a job's life, and the API's words for them: what it is asked for, and what servers of earlier releases
// respond. Aliases are accepted by --state, and not listed.
var jobStates = []struct {
	state        JobState
	ask          string
	old, aliases []string
}{
	{state: JobPendingApproval, ask: adminapi.JobPendingApproval, old: []string{"waiting"}, aliases: []string{"pending_approval", "pending-approval", "pending", "waiting"}},
	{state: JobQueued, ask: adminapi.JobQueued},
	{state: JobBlocked, ask: adminapi.JobBlocked},
	{state: JobNoPool, ask: adminapi.JobNoPool, aliases: []string{"no_pool", "no-pool", "unserved"}},
	{state: JobElsewhere, ask: adminapi.JobElsewhere},
	{state: JobAssigned, ask: adminapi.JobAssigned, old: []string{"claimed", "minted"}},
	{state: JobRunning, ask: adminapi.JobRunning, old: []string{"executing"}, aliases: []string{"in_progress", "in-progress", "executing"}},
	{state: JobCompleted, ask: adminapi.JobCompleted, old: []string{"cancelled", "stale"}},
}

// narrower are values of --state that mean less than their state. Scripts use them; they are not listed.
var narrower = map[string]struct {
	state JobState
	ask   string
}{
	"claimed": {JobAssigned, "claimed"}, "minted": {JobAssigned, "minted"},
	"cancelled": {JobCompleted, "cancelled"}, "canceled": {JobCompleted, "cancelled"}, "stale": {JobCompleted, "stale"},
}

// StateOf is the state of a job.
func StateOf(j adminapi.Job) JobState {
	for _, s := range jobStates {
		if j.State == s.ask || slices.Contains(s.old, j.State) {
			return s.state
		}
	}
	return JobState(j.State)
}

// jobState is the job's status, also if a server of an earlier release has sent it. Its cancelled and stale jobs had no other conclusion.
func jobState(j adminapi.Job) string {
	if state := StateOf(j); state != JobCompleted {
		j.State = string(state)
	}
	return j.Status()
}

// paintJob colours a job's state as GitHub does.
func paintJob(column, cell string) Colour {
	if column != "STATE" {
		return NoColour
	}
	switch cell {
	case "success":
		return Green
	case "failure", "timed out", "startup failure":
		return Red
	case "cancelled", "skipped", "neutral", "stale":
		return Grey
	case string(JobBlocked), string(JobNoPool), string(JobPendingApproval), "action required":
		return Yellow
	}
	return NoColour
}

// paintRunner colours a runner's stage.
var paintRunner = paintOnly("STAGE", map[string]Colour{"idle": Green, "starting": Yellow, "terminating": Grey, "finished": Grey})

// JobStates is the value of --state: states, separated by commas or in several flags.
type JobStates struct {
	states []JobState
	ask    []string
}

// Set adds states.
func (s *JobStates) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		if !s.add(strings.ToLower(strings.TrimSpace(word))) {
			names := JobStateNames()
			last := len(names) - 1
			return commandline.ValueError{Must: strings.Join(names[:last], ", ") + " or " + names[last]}
		}
	}
	return nil
}

func (s *JobStates) add(word string) bool {
	if less, ok := narrower[word]; ok {
		s.states, s.ask = append(s.states, less.state), append(s.ask, less.ask)
		return true
	}
	for _, known := range jobStates {
		if word == string(known.state) || slices.Contains(known.aliases, word) {
			s.states, s.ask = append(s.states, known.state), append(s.ask, known.ask)
			return true
		}
	}
	return false
}

// String is what was given.
func (s *JobStates) String() string {
	words := make([]string, len(s.states))
	for i, state := range s.states {
		words[i] = string(state)
	}
	return strings.Join(words, ",")
}

// Type is what help calls the value.
func (s *JobStates) Type() string { return "states" }

// Filter has a filter ask for these states; without any it stays as it is.
func (s *JobStates) Filter(f *JobFilter) {
	if len(s.states) == 0 {
		return
	}
	f.States = slices.Compact(slices.Sorted(slices.Values(s.ask)))
	f.Keep = func(j adminapi.Job) bool { return slices.Contains(s.states, StateOf(j)) }
}

// formerStages are names of stages that servers of before give, and that this command line had. It asks for today's.
var formerStages = map[string]string{"booting": "starting", "claimed": "assigned", "minted": "registered", "leaving": "terminating", "exited": "finished"}

// runnerStage is today's name of a stage.
func runnerStage(stage string) string { return cmp.Or(formerStages[stage], stage) }

// RunnerStages is the value of --stage.
type RunnerStages []string

// Set adds a stage.
func (s *RunnerStages) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		word = runnerStage(strings.ToLower(strings.TrimSpace(word)))
		names := adminapi.RunnerStages()
		if !slices.Contains(names, word) {
			last := len(names) - 1
			return commandline.ValueError{Must: strings.Join(names[:last], ", ") + " or " + names[last]}
		}
		*s = append(*s, word)
	}
	return nil
}

// String is what was given.
func (s *RunnerStages) String() string {
	words := make([]string, len(*s))
	for i, api := range *s {
		words[i] = runnerStage(api)
	}
	return strings.Join(words, ",")
}

// Type is what help calls the value.
func (s *RunnerStages) Type() string { return "stages" }
