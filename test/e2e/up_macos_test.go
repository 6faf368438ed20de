package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

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

// busyMac is the pod of the job that runs until its test releases it, once it is the only one.
func busyMac(t *testing.T, w *where) string {
	t.Helper()
	var name string
	require.Eventually(t, func() bool {
		owned, err := pods(t, w, runnerpod.LabelOwner)
		require.NoError(t, err)
		owned = slices.DeleteFunc(owned, func(pod corev1.Pod) bool {
			return pod.Spec.NodeName != "local-mac" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
		})
		if len(owned) == 1 {
			name = owned[0].Name
		}
		return len(owned) == 1
	}, patience, interval, "one busy runner on the Mac")
	return name
}

// Jobs for both platforms on one machine, with a fake of Tart in the place of a Mac. Its node agent may be killed while a
// job runs, and a cleanup leaves nothing of what was killed together.
func TestUp_NODE3_MacOSRunnersOutliveTheirNodeAgent(t *testing.T) {
	s := macsUp(t, "")
	s.passTo(t)
	dir, box, w := s.dir, s.box, s.w
	scaled, err := kubectl(t, w, w.Kubeconfig, "-n", runnerNamespace, "patch", "runnerpool", "macos", "--type=merge", "-p", `{"spec":{"replicas":2}}`)
	require.NoError(t, err, scaled)
	gate := filepath.Join(t.TempDir(), "gate")
	submit(t, dir, w, fmt.Sprintf(macJobs, gate))
	shown, err := kubectl(t, w, w.Kubeconfig, "get", "node", "local-mac", "-o",
		`jsonpath={.metadata.labels.kubernetes\.io/os} {.metadata.labels.kubernetes\.io/arch} {.status.capacity.bullpen\.dev/macos-vm}`)
	require.NoError(t, err, shown)
	require.Equal(t, "darwin arm64 2", shown)

	box.await(t, "the job that is to survive", func(e event) bool {
		return e.Job != nil && e.Job.Name == "survives" && e.Job.Status == "in_progress"
	})
	box.await(t, "the success of the other job on a Mac", jobEnded("macos", "success"))
	pod := busyMac(t, w)
	said, err := kubectl(t, w, w.Kubeconfig, "exec", "-n", "bullpen-runners", pod, "-c", "runner", "--", "sh", "-c", "echo $USER; exit 7")
	require.ErrorContains(t, err, "exit status 7", said)
	require.Contains(t, said, "admin", "kubectl exec leads into the virtual machine")
	require.NoError(t, syscall.Kill(w.Processes["node-mac"], syscall.SIGKILL))
	box.await(t, "another macOS agent", func(e event) bool {
		return e.Event == "started" && e.Part == "node-mac" && e.PID != w.Processes["node-mac"]
	})
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for _, job := range []string{"survives", "linux"} {
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
	require.Contains(t, stdout, "processes and pods of a killed run")
	left := processesOf(t, dir)
	require.Empty(t, left, "%s", strconv.Quote(strings.Join(left, "\n")))
}
