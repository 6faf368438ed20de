package realnode

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
)

// The instants of a job's start at which its pod gets TERM: from the moment in which it is queued to when its steps run.
const (
	stopInstants = 12
	stopStep     = 100 * time.Millisecond
	stopPools    = 4 // beside each other: an instant takes as long as two pods to start
)

// The instants of a pod's start at which it gets TERM. A pod starts within some two seconds where nothing else runs.
const (
	startInstants = 12
	startStep     = 200 * time.Millisecond
)

// stopPool has runners that start the worker of a job half a second after they have acquired it, as GitHub's may. A runner that is stopped in
// that time would lose the job.
const stopPool = `apiVersion: bullpen.dev/v1alpha1
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
	w.TB.(*testing.T).Run("instants", func(t *testing.T) {
		t.Run("of a pod", func(t *testing.T) {
			t.Parallel()
			w.in(t).stopStartingPods()
		})
		for n := range stopPools {
			pool := fmt.Sprintf("stopped-%d", n)
			t.Run("of a job in "+pool, func(t *testing.T) {
				t.Parallel()
				w.in(t).withPool(pool, 1, runnerRef, func(w *world) {
					for i := n; i < stopInstants; i += stopPools {
						w.stopDuringStart(pool, i)
					}
				})
			})
		}
	})
}

// withPool has a pool of its own while something is done.
func (w *world) withPool(name string, replicas int, image string, do func(w *world)) {
	file := filepath.Join(w.dir, "work", name+".yaml")
	require.NoError(w, os.WriteFile(file, fmt.Appendf(nil, stopPool, name, replicas, image), 0o600))
	w.run("kubectl apply -f " + name + ".yaml")
	do(w)
	w.run("kubectl delete -f "+name+".yaml", "--timeout=10m")
}

// stopDuringStart submits a job for the pool's one runner, and stops its pod so many steps later.
func (w *world) stopDuringStart(pool string, step int) {
	idle := w.await("an idle runner of "+pool, ofPool(pool), isIdle)
	how, stop := "deletion", func() error { return w.delete(idle, metav1.DeleteOptions{}) }
	if step%3 == 2 {
		how, stop = "eviction", func() error { return w.evict(idle) }
	} else {
		w.allowDeletion(idle)
	}
	job := fmt.Sprintf("%s-%d", pool, step)
	w.submit(job+".yaml", fmt.Sprintf(`
name: stop
on: [workflow_dispatch]
jobs:
  %[1]s:
    runs-on: [%[2]s]
    steps: [{run: sleep 0.3}]
`, job, pool), 1)
	<-time.After(time.Duration(step) * stopStep)
	w.account.stop(string(idle.UID))
	err := stop()
	refused := how == "eviction" && (apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err)) // it shows its job
	if !refused && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {                        // nor is it gone with its job done
		require.NoError(w, err, "%s %s after the job was queued", how, time.Duration(step)*stopStep)
	}
	w.eventually(fmt.Sprintf("job %s after the %s of its pod", job, how), func() bool {
		for _, seen := range w.jobs() {
			if seen.Key == job {
				return seen.Conclusion != ""
			}
		}
		return false
	})
	w.awaitGone(idle)
}

// stopStartingPods deletes pods of a pool so many steps after they were created. TERM then meets containers that start.
func (w *world) stopStartingPods() {
	const pool = "starting"
	w.withPool(pool, 3, runnerRef, func(w *world) {
		seen := map[types.UID]time.Time{}
		var due, stopped []corev1.Pod
		w.eventually("pods of the pool were deleted while they started", func() bool {
			for _, pod := range w.runners() {
				if _, known := seen[pod.UID]; !known && pod.Labels[runnerpod.LabelPool] == pool && pod.DeletionTimestamp == nil && len(seen) < startInstants {
					seen[pod.UID] = time.Now().Add(time.Duration(len(seen)) * startStep)
					due = append(due, pod)
				}
			}
			var later []corev1.Pod
			for _, pod := range due {
				if time.Now().Before(seen[pod.UID]) {
					later = append(later, pod)
					continue
				}
				if err := w.delete(pod, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
					require.NoError(w, err)
				}
				stopped = append(stopped, pod)
			}
			due = later
			return len(stopped) == startInstants
		})
		for _, pod := range stopped {
			w.awaitGone(pod)
		}
	})
}

func (w *world) allowDeletion(pod corev1.Pod) {
	allow := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"a test stops it"}}}`, runnerpod.AnnotationAllowDeletion)
	_, err := w.kube.CoreV1().Pods(pod.Namespace).Patch(w.Context(), pod.Name, types.MergePatchType, allow, metav1.PatchOptions{})
	require.NoError(w, err)
}

func ofPool(pool string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Labels[runnerpod.LabelPool] == pool }
}
