package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const macJobs = `
on: push
jobs:
  linux:
    runs-on: bullpen
    steps:
      - run: test "$USER" != admin
  macos:
    runs-on: bullpen-macos
    steps:
      - run: test "$USER" = admin && test -z "$TART_HOME"
  survives:
    runs-on: bullpen-macos
    steps:
      - run: while [ ! -e '%s' ]; do sleep 0.2; done
`

const longMacJob = `
on: push
jobs:
  long:
    runs-on: bullpen-macos
    steps:
      - run: sleep 600
`

// Jobs for both platforms on one machine, with a fake of Tart in the place of a Mac: its node agent may be killed while a job
// runs, and of everything that was killed together nothing is left when it is cleared away.
func TestUp_NODE3_MacOSRunnersOutliveTheirNodeAgent(t *testing.T) {
	dir := stateDir(t)
	gate := filepath.Join(t.TempDir(), "gate")
	box, w := up(t, dir, "--macos", "--runners", "1", "--workflow", writeFile(t, "mac.yaml", fmt.Sprintf(macJobs, gate)))
	shown, err := kubectl(t, w, w.Kubeconfig, "get", "node", "local-mac", "-o",
		`jsonpath={.metadata.labels.kubernetes\.io/os} {.metadata.labels.kubernetes\.io/arch} {.status.capacity.bullpen\.dev/macos-vm}`)
	require.NoError(t, err, shown)
	require.Equal(t, "darwin arm64 2", shown)

	box.await(t, "the job that is to survive", func(e event) bool {
		return e.Job != nil && e.Job.Name == "survives" && e.Job.Status == "in_progress"
	})
	var pod string
	require.Eventually(t, func() bool {
		pod, err = kubectl(t, w, w.Kubeconfig, "get", "pods", "-n", "bullpen-runners", "--field-selector=spec.nodeName=local-mac,status.phase=Running",
			"-l", runnerpod.LabelOwner, "-o", "jsonpath={.items[*].metadata.name}")
		return err == nil && len(strings.Fields(pod)) == 1
	}, patience, interval, "only the pod of the job that waits")
	said, err := kubectl(t, w, w.Kubeconfig, "exec", "-n", "bullpen-runners", pod, "-c", "runner", "--", "sh", "-c", "echo $USER; exit 7")
	require.ErrorContains(t, err, "exit status 7", said)
	require.Contains(t, said, "admin", "kubectl exec leads into the virtual machine")
	require.NoError(t, syscall.Kill(w.Processes["node-mac"], syscall.SIGKILL))
	box.await(t, "another macOS agent", func(e event) bool {
		return e.Event == "started" && e.Part == "node-mac" && e.PID != w.Processes["node-mac"]
	})
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for _, job := range []string{"survives", "macos", "linux"} {
		box.await(t, "the end of the job "+job, func(e event) bool { return e.Job != nil && e.Job.Name == job && e.Job.Conclusion != "" })
		box.await(t, "the success of the job "+job, jobEnded(job, "success"))
	}

	submit(t, dir, w, longMacJob)
	box.await(t, "the long job", func(e event) bool { return e.Job != nil && e.Job.Name == "long" && e.Job.Status == "in_progress" })
	require.Eventually(t, func() bool { return longJobRuns(t, dir) }, patience, interval)
	require.NoError(t, box.command.Process.Kill())
	box.exited(t)
	require.True(t, longJobRuns(t, dir), "a virtual machine outlives everything else")
	stdout, stderr, code := run(t, "down", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Contains(t, stdout, "ended what a killed run left behind")
	left := processesOf(t, dir)
	require.Empty(t, left, "%s", strconv.Quote(strings.Join(left, "\n")))
}
