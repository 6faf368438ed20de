package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

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

// EXCL-8: a pod is deleted, with its job's grace period, or evicted as Karpenter evicts pods of a node that it removes
// (R5). That happens at every instant from before its job is claimed to when the job's steps run. No job is lost, and none
// runs twice.
func TestStopped_EXCL8_AStopAtAnyInstantCostsNoJob(t *testing.T) {
	step, instants, pools := 200*time.Millisecond, 6, 3
	if deep.Enabled() {
		step, instants = 20*time.Millisecond, 60
	}
	dir := stateDir(t)
	box, w := up(t, dir, "--runners", "1")
	directory := t.TempDir()
	require.NoError(t, os.Chmod(directory, 0o777)) //nolint:gosec // jobs run as another user
	w.api(t)                                       // one client for all
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
		for how, stop := range map[string]stopping{"stopped": deletes, "evicted": evicts(t, w)} {
			for n := range pools { // beside each other: an instant takes as long as two pods to start
				name := fmt.Sprintf("%s-%d", how, n)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					output, err := kubectl(t, w, w.Kubeconfig, "apply", "-f", writeFile(t, name+".yaml", fmt.Sprintf(stoppedPool, name)))
					require.NoError(t, err, output)
					for i := n; i < instants; i += pools {
						stopAt(t, dir, w, stop, name, directory, i, time.Duration(i)*step)
						box.await(t, "the end of the job", jobEnded(fmt.Sprintf("%s-%d", name, i), "success"))
					}
				})
			}
		}
	})
	for i := range instants {
		for _, how := range []string{"stopped", "evicted"} {
			proof, err := os.ReadFile(filepath.Join(directory, fmt.Sprintf("%s-%d-%d", how, i%pools, i)))
			require.NoError(t, err)
			require.Equal(t, "begun\ndone\n", string(proof), "%s %s after the job was submitted", how, time.Duration(i)*step)
		}
	}
}

// stopping returns what stops a pod, which the pod's next job may be running on by then.
type stopping func(t *testing.T, w *where, pod corev1.Pod) (now func() error)

// deletes is kubectl delete, by an administrator who has allowed it.
func deletes(t *testing.T, w *where, pod corev1.Pod) func() error {
	t.Helper()
	runners := w.api(t).Resource(resource("pods.")).Namespace(runnerNamespace)
	allow := fmt.Sprintf(`{"metadata":{"annotations":{%q:"a node is shut down"}}}`, runnerpod.AnnotationAllowDeletion)
	_, err := runners.Patch(t.Context(), pod.Name, types.MergePatchType, []byte(allow), metav1.PatchOptions{})
	require.NoError(t, err)
	return func() error { return runners.Delete(t.Context(), pod.Name, metav1.DeleteOptions{}) }
}

// evicts is what Karpenter does. A busy runner that shows it is not evicted, by the budget or by the policy on evictions.
func evicts(t *testing.T, w *where) stopping {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return func(t *testing.T, _ *where, pod corev1.Pod) func() error {
		t.Helper()
		uid := pod.UID
		return func() error {
			err := kube.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
			})
			t.Logf("eviction of %s: %v", pod.Name, err)
			if apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err) {
				return nil
			}
			return err
		}
	}
}

// stopAt submits a job for the pool's one runner, and stops its pod so long after.
func stopAt(t *testing.T, dir string, w *where, stop stopping, pool, directory string, n int, after time.Duration) {
	t.Helper()
	var idle *corev1.Pod
	require.Eventually(t, func() bool {
		all, err := pods(t, w, runnerpod.LabelPool+"="+pool)
		for i := range all {
			if err == nil && all[i].DeletionTimestamp == nil && ready(all[i]) {
				idle = &all[i]
			}
		}
		return idle != nil
	}, patience, interval, "an idle runner")
	now := stop(t, w, *idle)
	submit(t, dir, w, fmt.Sprintf(`
on: push
jobs:
  %[1]s-%[2]d:
    runs-on: [%[1]s]
    steps: [{run: echo begun >> %[3]s/%[1]s-%[2]d}, {run: sleep 0.3}, {run: echo done >> %[3]s/%[1]s-%[2]d}]
`, pool, n, directory))
	<-time.After(after)
	if err := now(); !apierrors.IsNotFound(err) { // it may have done its job by then
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
