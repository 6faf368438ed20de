package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

var _ recovery.Cluster = (*View)(nil)

// freshPage is how many pods are read at a time.
const freshPage = 500

// RunnerPods lists every runner pod as it is now: past every cache, all pages as of one moment. An error means that
// nothing is known (RECV-4).
func (v *View) RunnerPods(ctx context.Context) ([]recovery.Pod, error) {
	var pods []recovery.Pod
	options := selector(metav1.ListOptions{Limit: freshPage}) // without a resourceVersion: the most recent
	for {
		page, err := v.client.CoreV1().Pods(v.opt.Namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing runner pods: %w", err)
		}
		for i := range page.Items {
			pods = append(pods, freshPod(&page.Items[i]))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return pods, nil
		}
	}
}

// RunnerPod reads one pod past every cache; false proves that no pod of that UID exists.
func (v *View) RunnerPod(ctx context.Context, namespace, name, uid string) (recovery.Pod, bool, error) {
	pod, err := v.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return recovery.Pod{}, false, nil
	case err != nil:
		return recovery.Pod{}, false, fmt.Errorf("reading pod %s: %w", name, err)
	case string(pod.UID) != uid:
		return recovery.Pod{}, false, nil // another pod of that name
	default:
		return freshPod(pod), true, nil
	}
}

// TakeOffOwner removes the owner label, and what was written with it, if the pod has not changed since it was read: a pod
// that has been given work in between keeps it.
func (v *View) TakeOffOwner(ctx context.Context, pod recovery.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
		"labels": map[string]any{runnerpod.LabelOwner: nil},
		"annotations": map[string]any{ // POOL-9: it no longer holds its node
			runnerpod.AnnotationOwnerID: nil, runnerpod.AnnotationSafeToEvict: "true", runnerpod.AnnotationDoNotDisrupt: nil,
		},
	}})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	_, err = v.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the owner label off pod %s: %w", pod.Name, err)
	}
	return nil
}

// freshPod reads what recovery needs. The controller reads the same signs of work (EXCL-4).
func freshPod(pod *corev1.Pod) recovery.Pod {
	out := recovery.Pod{Pod: toPod(pod), ResourceVersion: pod.ResourceVersion, Since: pod.CreationTimestamp.Time}
	out.Terminal = podsigns.Ended(pod) // POD-3
	poller, runner := podsigns.Container(pod, runnerpod.ContainerPoller), podsigns.Container(pod, runnerpod.ContainerRunner)
	if poller != nil && poller.State.Terminated != nil {
		out.Poller = recovery.Failed
		if poller.State.Terminated.ExitCode == 0 {
			out.Poller = recovery.Delivered
		}
		out.Since = latest(out.Since, poller.State.Terminated.FinishedAt.Time)
	}
	since, taken := podsigns.Taken(pod, runner)
	switch {
	case runner == nil:
	case runner.State.Terminated != nil:
		out.Runner = recovery.Stopped
		out.Since = latest(out.Since, runner.State.Terminated.FinishedAt.Time)
	case taken:
		out.Runner = recovery.NotReady
		out.Since = latest(out.Since, since)
	case podsigns.Jobless(pod, runner):
		out.Runner = recovery.Ready
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
