package realnode

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// endsWithin is far below the grace period of an hour, which a pod would wait for, and far above what an end takes.
const endsWithin = 30 * time.Second

// TestJobContainers_JOB2_EndWithTheirRunnerWhateverTheirProcessesDo: neither processes that ignore each signal, nor those that fill their pod keep
// it from ending with its runner, after a job and after a deletion. And those that fill it leave processes to other pods.
func TestJobContainers_JOB2_EndWithTheirRunnerWhateverTheirProcessesDo(t *testing.T) {
	requireMachine(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	j := newJobNode(ctx, t)

	pod, lines := j.start(ctx, "exits", "deaf", "exit")
	j.says(lines, "ignoring", "ignoring", "exit")
	j.ends(ctx, pod, "a job's end", func(now *corev1.Pod, err error) bool {
		require.NoError(t, err)
		return now.Status.Phase == corev1.PodSucceeded
	})

	gone := func(_ *corev1.Pod, err error) bool { return apierrors.IsNotFound(err) }
	pod, lines = j.start(ctx, "deleted", "deaf")
	j.says(lines, "ignoring", "ignoring")
	require.NoError(t, j.kube.CoreV1().Pods(j.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	j.says(lines, "exit")
	j.ends(ctx, pod, "a deletion", gone)

	j.memory = "2Gi" // for the kernel's part of each process
	pod, lines = j.start(ctx, "bomb", "bomb")
	j.says(lines, "resource temporarily unavailable")
	_, others := j.start(ctx, "other", "steps", "1")
	j.says(others, "ran")
	require.NoError(t, j.kube.CoreV1().Pods(j.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	j.says(lines, "exit")
	j.ends(ctx, pod, "the deletion of a pod that is full of processes", gone)
}

// start runs asker as a runner.
func (j *jobNode) start(ctx context.Context, name string, args ...string) (*corev1.Pod, <-chan said) {
	pod := j.runner(ctx, name, "500m", append([]string{"/asker"}, args...)...)
	j.running(ctx, pod)
	return pod, j.follow(ctx, pod)
}

// says returns when a runner has said these.
func (j *jobNode) says(lines <-chan said, words ...string) {
	for _, word := range words {
		for {
			l := await.ReceiveWithin(j, patience, lines, "the runner says "+word)
			require.Empty(j, l.Error+l.Response.Refusal)
			if l.What == word {
				break
			}
			require.Contains(j, []string{"begin", "response"}, l.What)
		}
	}
}

// ends requires that a pod whose runner exits is over soon. How soon is measured by benchmarks.
func (j *jobNode) ends(ctx context.Context, pod *corev1.Pod, after string, over func(*corev1.Pod, error) bool) {
	began := time.Now()
	require.Eventually(j, func() bool { return over(j.kube.CoreV1().Pods(j.namespace).Get(ctx, pod.Name, metav1.GetOptions{})) }, endsWithin, interval/2, "the pod waits for its grace period after %s", after)
	j.Logf("the pod was over %.1fs after its runner, after %s", time.Since(began).Seconds(), after)
}
