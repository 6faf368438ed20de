package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

const groupedPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: grouped, namespace: bullpen-runners}
spec:
  platform: linux
  labels: [grouped]
  runnerGroup: Builders
  replicas: 1
  resources: {cpu: 100m, memory: 64Mi}
  template: {image: bullpen, command: [bullpen, dev, runner, --work, /bullpen/work]}
`

// A job of an organization that lacks its pool's runner group waits, says why, and continues once the group exists.
func aRunnerGroupIsMade(t *testing.T, dir string, box *running, w *where) {
	output, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, "grouped.yaml", groupedPool))
	require.NoError(t, err, output)
	post(t, dir, w, "/_standin/installations", []byte(`{"account": "initech", "repositories": ["app"]}`))
	submitTo(t, dir, w, "initech/app", "on: push\njobs: {grouped: {runs-on: [grouped], steps: [{run: echo}]}}")
	require.Eventually(t, func() bool {
		list, _, code := run(t, "jobs", "--state", "queued,blocked", "--account", "initech", "-o", "json", "--state-dir", dir)
		var jobs []adminapi.Job
		if code != 0 || json.Unmarshal([]byte(list), &jobs) != nil || len(jobs) != 1 {
			return false
		}
		why, _, code := run(t, "why", strconv.FormatInt(jobs[0].ID, 10), "--state-dir", dir)
		return code == 0 && strings.Contains(why, "initech has no runner group Builders")
	}, patience, commandInterval, "the job says why it waits")
	post(t, dir, w, "/_standin/installations", []byte(`{"account": "initech", "repositories": ["app"], "runner_groups": ["builders"]}`))
	box.awaitWithin(t, 2*patience, "the end of the job", jobEnded("grouped", "success"))
}
