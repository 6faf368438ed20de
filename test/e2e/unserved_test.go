package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// jobsThatNoPoolServes submits a workflow whose label is misspelt: bullpen up, status, doctor and why name it, the nearest pool and the label to
// write. Cancelled, it is a problem no longer.
func jobsThatNoPoolServes(t *testing.T, dir string, w *where, up *running) {
	submit(t, dir, w, "on: push\njobs: {misspelt: {runs-on: bulpen, steps: [{run: echo}]}}")
	up.await(t, "the job that no pool serves", func(e event) bool {
		return e.Event == "note" && strings.HasPrefix(e.Message, "job misspelt stays queued: no pool serves bulpen. Nearest: pool default has bullpen, not bulpen. Write `runs-on: bullpen`")
	})
	says := func(text string, args ...string) func() bool {
		return func() bool {
			stdout, _, _ := run(t, append(args, "--state-dir", dir)...)
			return strings.Contains(stdout, text)
		}
	}
	const problem = "1 job queued for labels that no pool serves: bulpen. Nearest: pool default has bullpen, not bulpen."
	require.Eventually(t, says(problem, "status"), patience, commandInterval, "status names it")
	require.True(t, says(problem, "doctor", "--only", "database,cluster")(), "doctor finds it")
	require.True(t, says("1 with no pool", "status")(), "it is counted")
	id := whyTheJobWaits(t, dir, "acme", "no-pool")

	stdout, stderr, code := run(t, "cancel", id, "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Equal(t, "Cancelled job "+id+" (misspelt).\n", stdout)
	require.Eventually(t, func() bool {
		stdout, _, code := run(t, "status", "-o", "json", "--state-dir", dir)
		var status struct {
			Unserved *adminapi.UnservedJobs
			Problems []string
		}
		return code == 0 && json.Unmarshal([]byte(stdout), &status) == nil && status.Unserved != nil && status.Unserved.Jobs == 0 &&
			!strings.Contains(strings.Join(status.Problems, " "), "no pool serves")
	}, patience, commandInterval, "job "+id+" is a problem no longer")
}
