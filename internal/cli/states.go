package cli

import (
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// JobState is the state of a job in the words of this command line. The API's are those of the database.
type JobState string

// The states. A completed job is shown with its conclusion instead.
const (
	JobPendingApproval JobState = "pending approval"
	JobQueued          JobState = "queued"
	JobBlocked         JobState = "blocked"  // queued, and a limit or GitHub holds it back
	JobAssigned        JobState = "assigned" // a runner was chosen
	JobRunning         JobState = "running"
	JobCompleted       JobState = "completed"
	JobCancelled       JobState = "cancelled"
	JobStale           JobState = "stale" // GitHub no longer reports it
)

// JobStateNames are the values of --state.
func JobStateNames() []string {
	names := make([]string, len(jobStates))
	for i, s := range jobStates {
		names[i] = string(s.state)
	}
	return names
}

// jobStates are the states in the order of a job's life, and the API's behind each. Aliases are accepted by --state, and not listed.
var jobStates = []struct {
	state   JobState
	api     []string
	aliases []string
}{
	{JobPendingApproval, []string{"waiting"}, []string{"pending-approval", "pending", "waiting"}},
	{JobQueued, []string{"queued"}, nil},
	{JobBlocked, []string{"queued"}, nil},
	{JobAssigned, []string{"claimed", "minted"}, nil},
	{JobRunning, []string{"executing"}, []string{"in_progress", "in-progress", "executing"}},
	{JobCompleted, []string{"completed"}, nil},
	{JobCancelled, []string{"cancelled"}, []string{"canceled"}},
	{JobStale, []string{"stale"}, nil},
}

// StateOf is the state of a job.
func StateOf(j adminapi.Job) JobState {
	if j.State == "queued" && j.Held != "" {
		return JobBlocked
	}
	for _, s := range jobStates {
		if s.state != JobBlocked && slices.Contains(s.api, j.State) {
			return s.state
		}
	}
	return JobState(j.State)
}

// jobState is what a table shows: how the job concluded, or its state.
func jobState(j adminapi.Job) string {
	if j.Conclusion != "" {
		return j.Conclusion
	}
	return string(StateOf(j))
}

// paintJob colours a job's state as GitHub does.
func paintJob(column, cell string) Colour {
	if column != "STATE" {
		return NoColour
	}
	switch cell {
	case "success":
		return Green
	case "failure", "timed_out", "startup_failure":
		return Red
	case "cancelled", "skipped", "neutral", "stale":
		return Grey
	case string(JobBlocked), string(JobPendingApproval), "action_required":
		return Yellow
	}
	return NoColour
}

// JobStates is the value of --state: states, separated by commas or in several flags.
type JobStates struct {
	states []JobState
	api    []string // what the API is asked for, where an alias means less than its state
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
	if word == "claimed" || word == "minted" { // the two steps of an assigned job, which scripts may ask for one by one
		s.states, s.api = append(s.states, JobAssigned), append(s.api, word)
		return true
	}
	for _, known := range jobStates {
		if word == string(known.state) || slices.Contains(known.aliases, word) {
			s.states, s.api = append(s.states, known.state), append(s.api, known.api...)
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
	f.States = slices.Compact(slices.Sorted(slices.Values(s.api)))
	f.Keep = func(j adminapi.Job) bool { return slices.Contains(s.states, StateOf(j)) }
}

// runnerStages are the stages of a runner in the words of this command line, in the order of its life, and the API's.
var runnerStages = []struct{ stage, api string }{
	{"starting", "booting"}, {"idle", "idle"}, {"assigned", "claimed"}, {"registered", "minted"}, {"busy", "busy"}, {"terminating", "leaving"}, {"exited", "finished"},
}

// RunnerStageNames are the values of --stage.
func RunnerStageNames() []string {
	names := make([]string, len(runnerStages))
	for i, s := range runnerStages {
		names[i] = s.stage
	}
	return names
}

// runnerStage is the word for a stage of the API.
func runnerStage(api string) string {
	for _, s := range runnerStages {
		if s.api == api {
			return s.stage
		}
	}
	return api
}

// RunnerStages is the value of --stage. The API's words are accepted too.
type RunnerStages []string

// Set adds a stage.
func (s *RunnerStages) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		at := slices.IndexFunc(runnerStages, func(known struct{ stage, api string }) bool { return word == known.stage || word == known.api })
		if at < 0 {
			names := RunnerStageNames()
			last := len(names) - 1
			return commandline.ValueError{Must: strings.Join(names[:last], ", ") + " or " + names[last]}
		}
		*s = append(*s, runnerStages[at].api)
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
