package cli_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Every state of the API has one word here, and every state of the database has one.
func TestStateOf(t *testing.T) {
	for want, jobs := range map[cli.JobState][]adminapi.Job{
		cli.JobPendingApproval: {{State: "waiting"}, {State: "pending_approval"}},
		cli.JobQueued:          {{State: "queued"}},
		cli.JobBlocked:         {{State: "blocked", BlockedBy: "repository_limit"}},
		cli.JobAssigned:        {{State: "claimed"}, {State: "minted"}, {State: "assigned"}},
		cli.JobRunning:         {{State: "executing"}, {State: "running"}},
		cli.JobCompleted:       {{State: "completed", Conclusion: "success"}, {State: "cancelled"}, {State: "stale"}},
		"later":                {{State: "later"}},
	} {
		for _, job := range jobs {
			require.Equal(t, want, cli.StateOf(job), job.State)
		}
	}
	known := cli.JobStateNames()
	for _, state := range fleet.JobStates() {
		if state != fleet.JobAbsent {
			require.Contains(t, known, string(cli.StateOf(adminapi.Job{State: string(state)})), state)
		}
	}
}

// --state takes the words of the STATE column, and those that it took before.
func TestJobStates_Flag(t *testing.T) {
	for text, want := range map[string][]string{
		"running": {"running"}, "executing": {"running"}, "in_progress": {"running"}, "Running": {"running"},
		"queued": {"queued"}, "blocked": {"blocked"}, "queued,blocked": {"blocked", "queued"},
		"pending approval": {"pending_approval"}, "pending-approval": {"pending_approval"}, "waiting": {"pending_approval"},
		"assigned": {"assigned"}, "minted": {"minted"},
		"completed": {"completed"}, "cancelled": {"cancelled"}, "stale": {"stale"},
		"running, completed": {"completed", "running"},
	} {
		var states cli.JobStates
		require.NoError(t, states.Set(text), text)
		var filter cli.JobFilter
		states.Filter(&filter)
		require.Equal(t, want, filter.States, text)
	}
	for _, state := range cli.JobStateNames() {
		require.NoError(t, new(cli.JobStates).Set(state), "the help names it")
	}
	for _, bad := range []string{"", "lost", "running,", "running;queued"} {
		require.ErrorContains(t, new(cli.JobStates).Set(bad), "pending approval, queued, blocked, no pool, elsewhere, assigned, running or completed", bad)
	}
	var filter cli.JobFilter
	new(cli.JobStates).Filter(&filter)
	require.Equal(t, cli.JobFilter{}, filter, "no state selects all")
}

func TestRunnerStages_Flag(t *testing.T) {
	var stages cli.RunnerStages
	require.NoError(t, stages.Set("starting,assigned"))
	require.NoError(t, stages.Set("leaving"))
	require.Equal(t, cli.RunnerStages{"starting", "assigned", "terminating"}, stages)
	require.Equal(t, "starting,assigned,terminating", stages.String())
	require.ErrorContains(t, stages.Set("asleep"), "starting, idle, assigned, registered, busy, terminating or finished")
	for _, stage := range adminapi.RunnerStages() {
		require.NoError(t, stages.Set(stage))
	}
	require.Error(t, stages.Set(""))
}

// A completed job is shown with its conclusion. Colours are a terminal's alone.
func TestJobTable_ShowsTheConclusion(t *testing.T) {
	now := time.Now()
	jobs := []adminapi.Job{
		{ID: 1, State: "completed", Conclusion: "success", QueuedAt: now}, {ID: 2, State: "completed", Conclusion: "failure", QueuedAt: now},
		{ID: 3, State: "cancelled", QueuedAt: now}, {ID: 4, State: "blocked", BlockedBy: "repository_limit", QueuedAt: now}, {ID: 5, State: "running", QueuedAt: now},
		{ID: 6, State: "completed", Conclusion: "timed_out", QueuedAt: now}, {ID: 7, State: "executing", QueuedAt: now},
	}
	table := cli.JobTable(jobs, now)
	var states []string
	for _, row := range table.Rows {
		states = append(states, row[3])
	}
	require.Equal(t, []string{"success", "failure", "cancelled", "blocked", "running", "timed out", "running"}, states)

	var plain bytes.Buffer
	require.NoError(t, cli.Print(&plain, cli.FormatTable, jobs, table))
	require.NotContains(t, plain.String(), "\x1b")
	coloured := screen{}
	require.NoError(t, cli.Print(&coloured, cli.FormatTable, jobs, table))
	require.Contains(t, coloured.String(), string(cli.Green)+"success\x1b[0m")
	require.Contains(t, coloured.String(), string(cli.Red)+"failure\x1b[0m")
	require.NotContains(t, coloured.String(), "\x1b[31mrunning")
	require.Equal(t, plain.String(), uncoloured.Replace(coloured.String()), "colours move no column")
}
