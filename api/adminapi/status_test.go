package adminapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Users read a job's conclusion once it has one, and until then its state in the field's words.
func TestJob_StatusIsWhatUsersRead(t *testing.T) {
	for want, job := range map[string]Job{
		"failure":          {State: JobCompleted, Conclusion: "failure"},
		"timed out":        {State: JobCompleted, Conclusion: "timed_out"},
		"pending approval": {State: JobPendingApproval},
		"blocked":          {State: JobBlocked, BlockedBy: "repository_limit"},
		"running":          {State: JobRunning},
	} {
		require.Equal(t, want, job.Status())
	}
}

// A runner has one name: its pod's.
func TestJob_RunnerIsItsPod(t *testing.T) {
	require.Equal(t, "linux-a", Job{Pod: "linux-a", RunnerName: "bp-x"}.Runner())
	require.Equal(t, "elsewhere", Job{RunnerName: "elsewhere"}.Runner())
	require.Empty(t, Job{}.Runner())
}

func TestExitCode_NamesSignals(t *testing.T) {
	require.Equal(t, "code 137 (SIGKILL)", ExitCode(137))
	require.Equal(t, "code 3", ExitCode(3))
}
