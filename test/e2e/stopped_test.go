package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// The runner starts its worker half a second after it has acquired its job, as GitHub's does where GitHub is not next door. A runner that is
// stopped in that time loses the job.
const stoppedPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: %[1]s, namespace: bullpen-runners}
spec:
  platform: linux
  labels: [%[1]s]
  replicas: 1
  resources: {cpu: 100m, memory: 64Mi}
  template: {image: bullpen, command: [bullpen, dev, runner, --work, /bullpen/work, --worker-after, 500ms]}
`

// EXCL-8: a pod is deleted, with its job's grace period, at every instant from before its job is claimed to when the job's steps run. No job is
// lost, and none runs twice.
func TestStopped_EXCL8_AStopAtAnyInstantCostsNoJob(t *testing.T) {
	step, instants, pools := 100*time.Millisecond, 12, 3
	if deep.Enabled() {
		step, instants = 20*time.Millisecond, 60
	}
	dir := stateDir(t)
	box, w := up(t, dir, "--runners", "1")
	folder := t.TempDir()
	require.NoError(t, os.Chmod(folder, 0o777)) //nolint:gosec // jobs run as another user
	w.api(t)                                    // one client for all
	t.Run("pools", func(t *testing.T) {
		t.Run("hung", func(t *testing.T) {
			t.Parallel()
			aHungRunnerIsGone(t, dir, box, w)
		})
		t.Run("grouped", func(t *testing.T) {
			t.Parallel()
			aRunnerGroupIsMade(t, dir, box, w)
		})
		t.Run("meshed", func(t *testing.T) {
			t.Parallel()
			aMeshedRunnerIsGone(t, dir, box, w)
		})
		for n := range pools { // beside each other: an instant takes as long as two pods to start
			name := fmt.Sprintf("stopped-%d", n)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				output, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, name+".yaml", fmt.Sprintf(stoppedPool, name)))
				require.NoError(t, err, output)
				for i := n; i < instants; i += pools {
					stopAt(t, dir, w, name, folder, i, time.Duration(i)*step)
					box.await(t, "the end of the job", jobEnded(fmt.Sprintf("%s-%d", name, i), "success"))
				}
			})
		}
	})
	for i := range instants {
		proof, err := os.ReadFile(filepath.Join(folder, fmt.Sprint(i)))
		require.NoError(t, err)
		require.Equal(t, "begun\ndone\n", string(proof), "stopped %s after the job was submitted", time.Duration(i)*step)
	}
}

// stopAt submits a job for the pool's one runner, and deletes its pod so long after.
func stopAt(t *testing.T, dir string, w *where, pool, folder string, n int, after time.Duration) {
	t.Helper()
	runners := w.api(t).Resource(resource("pods.")).Namespace("bullpen-runners")
	idle := ""
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"="+pool)
		for _, pod := range all {
			if err == nil && pod.DeletionTimestamp == nil && ready(pod) {
				idle = pod.Name
			}
		}
		return idle != ""
	}, patience, interval, "an idle runner")
	allow := fmt.Sprintf(`{"metadata":{"annotations":{%q:"a node is shut down"}}}`, runnerpod.AnnotationAllowDeletion)
	_, err := runners.Patch(t.Context(), idle, types.MergePatchType, []byte(allow), metav1.PatchOptions{})
	require.NoError(t, err)
	submit(t, dir, w, fmt.Sprintf(`
on: push
jobs:
  %[1]s-%[2]d:
    runs-on: [%[1]s]
    steps: [{run: echo begun >> %[3]s/%[2]d}, {run: sleep 0.3}, {run: echo done >> %[3]s/%[2]d}]
`, pool, n, folder))
	<-time.After(after)
	if err := runners.Delete(t.Context(), idle, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) { // it may have done its job by then
		require.NoError(t, err)
	}
}

func ready(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
