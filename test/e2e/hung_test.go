package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

const hungPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: hung, namespace: bullpen-runners}
spec:
  platform: linux
  labels: [hung]
  replicas: 1
  resources: {cpu: 100m, memory: 64Mi}
  template: {image: bullpen, command: [bullpen, dev, runner, --work, /bullpen/work]}
`

// A step's shell is a child of the worker, which is a child of the listener.
const hangingJob = `
on: push
jobs:
  hangs:
    runs-on: [hung]
    steps: [{run: "kill -STOP $(cut -d ' ' -f 4 /proc/$PPID/stat)"}]
`

// TEN-4, TEN-5: a job stops its listener. Its pod is charged to its account until it is gone, so that the account's next
// job waits and no other account's does, and it is gone in two minutes.
func aHungRunnerIsGone(t *testing.T, dir string, box *running, w *where) {
	post(t, dir, w, "/_standin/installations", []byte(`{"account": "globex", "repositories": ["app"]}`))
	require.Eventually(t, func() bool {
		_, _, code := run(t, "accounts", "set-limits", "globex", "--jobs", "1", "--state-dir", dir)
		return code == 0
	}, patience, commandInterval, "the account is known")
	output, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, "hung.yaml", hungPool))
	require.NoError(t, err, output)

	submitTo(t, dir, w, "globex/app", hangingJob)
	hung := ""
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"=hung")
		owned := slices.IndexFunc(all, func(p corev1.Pod) bool { return kit.Owned(&p) })
		if err == nil && owned >= 0 {
			hung = all[owned].Name
		}
		return hung != ""
	}, patience, interval, "its runner")
	box.await(t, "the end of the job, which its worker reports", jobEnded("hangs", "success"))
	over := time.Now()

	submitTo(t, dir, w, "globex/app", "on: push\njobs: {next: {runs-on: [hung], steps: [{run: echo}]}}")
	require.Eventually(t, func() bool {
		jobs, _, code := run(t, "jobs", "--state", "blocked", "--account", "globex", "--state-dir", dir)
		return code == 0 && strings.Contains(jobs, "globex/app")
	}, patience, commandInterval, "GitHub has reported the job")
	whyTheJobWaits(t, dir, "globex", "account-at-limit")
	submit(t, dir, w, "on: push\njobs: {another: {runs-on: [hung], steps: [{run: echo}]}}")
	box.await(t, "the end of another account's job", jobEnded("another", "success"))

	there := func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"=hung")
		require.NoError(t, err)
		for _, pod := range all {
			if pod.Name == hung && len(pod.Status.ContainerStatuses) > 0 {
				return true
			}
		}
		return false
	}
	require.True(t, there(), "it hangs, and no other has waited for it")
	box.awaitWithin(t, 3*time.Minute, "the account's next job", jobEnded("next", "success"))
	require.Eventually(t, func() bool { return !there() }, patience, interval)
	require.Less(t, time.Since(over), 2*time.Minute)
}
