package onebox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// runnerSelector finds runner pods.
const runnerSelector = runnerpod.LabelRunner + "=true"

// stage is the stage of a runner pod, by its status.
type stage string

const (
	stageStarting    stage = "starting"
	stageIdle        stage = "idle"
	stageBusy        stage = "busy"
	stageTerminating stage = "terminating"
	stageFinished    stage = "finished"
)

// stageOf reads a pod's stage for people. The fleet's own decisions are made elsewhere, on more than this.
func stageOf(pod *corev1.Pod) stage {
	var runner, poller *corev1.ContainerStatus
	for i := range pod.Status.ContainerStatuses {
		switch status := &pod.Status.ContainerStatuses[i]; status.Name {
		case runnerpod.ContainerRunner:
			runner = status
		case runnerpod.ContainerPoller:
			poller = status
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return stageFinished
	case runner != nil && runner.State.Terminated != nil:
		return stageFinished
	case runner != nil && runner.State.Running != nil && (pod.Labels[runnerpod.LabelOwner] != "" || poller != nil && poller.State.Terminated != nil):
		return stageBusy
	case pod.DeletionTimestamp != nil:
		return stageTerminating
	case runner != nil && runner.Ready:
		return stageIdle
	default:
		return stageStarting
	}
}

func listRunnerPods(ctx context.Context, kube kubernetes.Interface) ([]corev1.Pod, error) {
	list, err := kube.CoreV1().Pods(RunnerNamespace).List(ctx, metav1.ListOptions{LabelSelector: runnerSelector})
	if err != nil {
		return nil, fmt.Errorf("listing the runner pods: %w", err)
	}
	return list.Items, nil
}

// Running says how many runners have a job right now: what a stop would cut off.
func (b *Box) Running(ctx context.Context) (int, error) {
	pods, err := listRunnerPods(ctx, b.kube)
	if err != nil {
		return 0, err
	}
	busy := 0
	for _, pod := range pods {
		if stageOf(&pod) == stageBusy {
			busy++
		}
	}
	return busy, nil
}

// Removal is a deleted runner pod, as it was at that moment.
type Removal struct {
	Pod  string    `json:"pod"`
	UID  string    `json:"uid"`
	Seen time.Time `json:"seen"`
	// Finished: the runner had exited before.
	Finished bool `json:"finished"`
}

// podRow is one runner pod for the table.
type podRow struct {
	Name  string
	UID   string
	Stage stage
	Since time.Time
	// Mac indicates that it is a macOS runner.
	Mac bool
	// Pool and Hash are the pool and the template that it was made from; Placed says that it has a node.
	Pool, Hash string
	Placed     bool
}

// podWatch watches runner pods and records each deletion when it is first seen. It is the demonstration's own evidence, independent of the
// controller and the server.
type podWatch struct {
	now func() time.Time

	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	pods     map[string]podRow
	removals map[string]Removal // by UID: the first sign of a deletion
	order    []string
	changed  chan struct{}
}

// watchPods begins to watch and returns when the first list is there.
func watchPods(ctx context.Context, kube kubernetes.Interface, now func() time.Time) (*podWatch, error) {
	w := &podWatch{now: now, pods: map[string]podRow{}, removals: map[string]Removal{}, changed: make(chan struct{}, 1)}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(RunnerNamespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = runnerSelector }))
	informer := factory.Core().V1().Pods().Informer()
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.see(object, false) },
		UpdateFunc: func(_, object any) { w.see(object, false) },
		DeleteFunc: func(object any) { w.see(object, true) },
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching the runner pods: %w", err)
	}
	w.done.Go(func() { informer.RunWithContext(watching) })
	if !cache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		w.close()
		return nil, fmt.Errorf("watching the runner pods: %w", ctx.Err())
	}
	return w, nil
}

func (w *podWatch) close() {
	w.stop()
	w.done.Wait()
}

func (w *podWatch) see(object any, gone bool) {
	if tombstone, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	uid := string(pod.UID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone || pod.DeletionTimestamp != nil {
		if _, known := w.removals[uid]; !known {
			w.removals[uid] = Removal{Pod: pod.Name, UID: uid, Seen: w.now(), Finished: stageOf(pod) == stageFinished}
			w.order = append(w.order, uid)
		}
	}
	if gone {
		delete(w.pods, uid)
	} else {
		row := podRow{
			Name: pod.Name, UID: uid, Stage: stageOf(pod), Since: w.now(), Placed: pod.Spec.NodeName != "",
			Mac: pod.Spec.NodeSelector[corev1.LabelOSStable] == "darwin", Pool: pod.Labels[runnerpod.LabelPool], Hash: pod.Labels[runnerpod.LabelTemplateHash],
		}
		if before, known := w.pods[uid]; known && before.Stage == row.Stage {
			row.Since = before.Since
		}
		w.pods[uid] = row
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// rows are the pods that exist, by name.
func (w *podWatch) rows() []podRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := make([]podRow, 0, len(w.pods))
	for _, row := range w.pods {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b podRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// seenRemovals are the deletions so far, in the order in which they were seen.
func (w *podWatch) seenRemovals() []Removal {
	w.mu.Lock()
	defer w.mu.Unlock()
	removals := make([]Removal, 0, len(w.order))
	for _, uid := range w.order {
		removals = append(removals, w.removals[uid])
	}
	return removals
}

func countStage(rows []podRow, wanted stage) int {
	count := 0
	for _, row := range rows {
		if row.Stage == wanted {
			count++
		}
	}
	return count
}

// awaitIdle waits until that many runners are idle.
func (w *podWatch) awaitIdle(ctx context.Context, wanted int) error {
	return w.await(ctx, fmt.Sprintf("%d idle runners", wanted), func(rows []podRow) bool { return countStage(rows, stageIdle) >= wanted })
}

// await waits until the pods are as asked for; what names it in the error. Only one may wait at a time.
func (w *podWatch) await(ctx context.Context, what string, holds func([]podRow) bool) error {
	for {
		rows := w.rows()
		if holds(rows) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s (%d idle, %d busy, %d starting): %w", what,
				countStage(rows, stageIdle), countStage(rows, stageBusy), countStage(rows, stageStarting), ctx.Err())
		case <-w.changed:
		}
	}
}
