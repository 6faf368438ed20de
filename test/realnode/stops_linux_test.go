package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

var (
	// The instants of a job's start at which its pod gets TERM: from the moment in which it is queued to when its steps run.
	stopInstants, stopStep = everyThird(12, 100*time.Millisecond)
	// The instants of a pod's start at which it gets TERM. A pod starts within some two seconds where nothing else runs.
	startInstants, startStep = everyThird(12, 200*time.Millisecond)
)

// everyThird is what make test has of instants that make test-deep has all of.
func everyThird(instants int, step time.Duration) (int, time.Duration) {
	if deep.Enabled() {
		return instants, step
	}
	return instants / 3, 3 * step
}

// stopPool has runners that start the worker of a job half a second after they have acquired it, as GitHub's may. A runner that is stopped in
// that time would lose the job.
const stopPool = `---
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: %[1]s, namespace: ` + runnersNamespace + `}
spec:
  platform: linux
  labels: [%[1]s]
  replicas: %[2]d
  resources: {cpu: 50m, memory: 256Mi}
  template:
    image: %[3]s
    command: [/usr/local/bin/bullpen, dev, runner, --work, /bullpen/work, --worker-after, 500ms]
    terminationGracePeriodSeconds: 600
`

// stopRunners has the kubelet stop pods at every instant of their start, and of the start of their job (EXCL-8). No job is lost, none runs twice,
// and a pod without a job is gone long before its grace period has passed.
func (w *world) stopRunners() {
	w.withPools([]string{startingPool}, 3, (*world).stopStartingPods)
	var pools []string
	for step := range stopInstants { // a pool for each instant: its one runner gets the job
		pools = append(pools, fmt.Sprintf("stopped-%d", step))
	}
	w.withPools(pools, 1, func(w *world) { w.stopStartingJobs(pools) })
}

// withPools has pools of their own while something is done.
func (w *world) withPools(names []string, replicas int, do func(w *world)) {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, stopPool, name, replicas, runnerRef)
	}
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, "work", "pools.yaml"), []byte(text.String()), 0o600))
	w.run("kubectl apply -f pools.yaml")
	do(w)
	w.run("kubectl delete -f pools.yaml", "--timeout=10m")
}

// stopStartingJobs submits a job for the one runner of each pool, and stops the runners so many steps later as their pool has before it.
func (w *world) stopStartingJobs(pools []string) {
	idle := make([]corev1.Pod, len(pools))
	for step, pool := range pools {
		idle[step] = w.await("an idle runner of "+pool, ofPool(pool), isIdle)
		if !evicted(step) {
			w.allowDeletion(idle[step])
		}
	}
	due := make([]time.Time, len(pools))
	for step, pool := range pools {
		w.submit(pool+".yaml", fmt.Sprintf(stopWorkflow, pool), 1)
		due[step] = time.Now().Add(time.Duration(step) * stopStep)
	}
	for step := range pools {
		<-time.After(time.Until(due[step]))
		w.stop(idle[step], step)
	}
	w.awaitJobs("jobs whose pods were stopped", 0)
	for _, pod := range idle {
		w.awaitGone(pod)
	}
}

const stopWorkflow = `
name: stop
on: [workflow_dispatch]
jobs:
  %[1]s:
    runs-on: [%[1]s]
    steps: [{run: sleep 0.3}]
`

// evicted says at which instants a pod is evicted, as Karpenter evicts those of a node that it removes. At the others it is deleted by an administrator
// who has allowed that.
func evicted(step int) bool { return step%3 == 2 }

// stop stops a pod with its grace period, whatever it is doing.
func (w *world) stop(pod corev1.Pod, step int) {
	how, stop := "deletion", func() error { return w.delete(pod, metav1.DeleteOptions{}) }
	if evicted(step) {
		how, stop = "eviction", func() error { return w.evict(pod) }
	}
	w.account.stop(string(pod.UID))
	err := stop()
	w.Logf("%s of %s %s after its job was queued: %v", how, pod.Name, time.Duration(step)*stopStep, err)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // its job is done
	case evicted(step) && (apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err)): // it shows its job
	default:
		require.NoError(w, err, "%s %s after the job was queued", how, time.Duration(step)*stopStep)
	}
}

// startingPool has the pods that are stopped while they start.
const startingPool = "starting"

// stopStartingPods deletes pods of a pool so many steps after they were created. TERM then meets containers that start.
func (w *world) stopStartingPods() {
	stopAt := map[types.UID]time.Time{}
	var waiting, stopped []corev1.Pod
	w.eventually("pods of the pool were deleted while they started", func() bool {
		for _, pod := range w.runners() {
			if _, known := stopAt[pod.UID]; !known && ofPool(startingPool)(&pod) && pod.DeletionTimestamp == nil && len(stopAt) < startInstants {
				stopAt[pod.UID] = time.Now().Add(time.Duration(len(stopAt)) * startStep)
				waiting = append(waiting, pod)
			}
		}
		var later []corev1.Pod
		for _, pod := range waiting {
			if time.Now().Before(stopAt[pod.UID]) {
				later = append(later, pod)
				continue
			}
			if err := w.delete(pod, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				require.NoError(w, err)
			}
			stopped = append(stopped, pod)
		}
		waiting = later
		return len(stopped) == startInstants
	})
	for _, pod := range stopped {
		w.awaitGone(pod)
	}
}

func (w *world) allowDeletion(pod corev1.Pod) {
	allow := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"a test stops it"}}}`, runnerpod.AnnotationAllowDeletion)
	_, err := w.kube.CoreV1().Pods(pod.Namespace).Patch(w.Context(), pod.Name, types.MergePatchType, allow, metav1.PatchOptions{})
	require.NoError(w, err)
}

func ofPool(pool string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Labels[runnerpod.LabelPool] == pool }
}
