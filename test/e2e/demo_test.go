package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The whole path of a job: a workflow file in, warm runners do it, while the server, the controller and the node agent
// are restarted and the pool and its node are changed. The command itself judges by GitHub's word and by a watch of the pods.
func TestDemo(t *testing.T) {
	dir := stateDir(t)
	stdout, stderr, code := run(t, "demo", "--jobs", "16", "--runners", "3", "--state-dir", dir)
	require.Zero(t, code, "%s%s", stdout, stderr)
	for _, line := range []string{
		"16, 16 as expected (14 success, 1 failure, 1 skipped)",
		"restarted       macOS agent kill -9", "restarted       server      kill -9", "restarted       controller  SIGTERM", "restarted       node agent  kill -9",
		"changed         changed the pool's template", "changed         scaled the pool to zero and back",
		"changed         cordoned the node and uncordoned it", "changed         renamed the pool",
		"processes left  0", "killed mid-job: 0", "PASSED: ",
	} {
		require.Contains(t, stdout, line)
	}
	require.Empty(t, processesOf(t, dir))
}

func TestDemoRefusesImpossibleNumbers(t *testing.T) {
	refused(t, "--jobs must be between 9 and ", "demo", "--jobs", "2")
	refused(t, "--runners must be between 1 and 38", "demo", "--runners", "0")
}
