package pool

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/internal/plan/prepull"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// prepullPodEvents keep the book of images up to date, and start a pass when images have become present, missing or impossible to pull.
func (r *Reconciler) prepullPodEvents() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	note := func(pod *corev1.Pod, exists bool, q queue) {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[runnerpod.LabelPrepull]}
		var changed []string
		if exists {
			changed = r.tracker.images.podSeen(key, pod.Name, observePrepull(pod))
		} else {
			changed = r.tracker.images.podGone(key, pod.Name)
		}
		for _, node := range changed {
			r.tracker.nodeChanged(r.tracker.nodes.runnersOn(node, key), r.now())
		}
		if len(changed) > 0 {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { note(e.Object, true, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) { note(e.ObjectNew, true, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) { note(e.Object, false, q) },
	}
}

// daemonSetEvents note what becomes of the DaemonSets, and start a pass when another client has changed or deleted one.
func (r *Reconciler) daemonSetEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	keyOf := func(daemons *metav1.PartialObjectMetadata) (types.NamespacedName, bool) {
		pool := daemons.Labels[runnerpod.LabelPrepull]
		return types.NamespacedName{Namespace: daemons.Namespace, Name: pool}, pool != "" && daemons.Name == runnerpod.PrepullName(pool)
	}
	seen := func(daemons *metav1.PartialObjectMetadata, q queue) {
		if key, is := keyOf(daemons); is && r.tracker.images.daemonsSeen(key, observeDaemons(daemons)) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], q queue) {
			seen(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], q queue) {
			seen(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*metav1.PartialObjectMetadata], q queue) {
			if key, is := keyOf(e.Object); is {
				r.tracker.images.daemonsGone(key, e.Object.UID)
				q.Add(reconcile.Request{NamespacedName: key})
			}
		},
	}
}

func observeDaemons(daemons metav1.Object) daemonSet {
	seen := daemonSet{
		uid: daemons.GetUID(), resourceVersion: daemons.GetResourceVersion(), spec: daemons.GetAnnotations()[runnerpod.AnnotationPrepullSpec],
		deleting: daemons.GetDeletionTimestamp() != nil,
	}
	if owner := metav1.GetControllerOf(daemons); owner != nil {
		seen.owner = owner.UID
	}
	return seen
}

// observePrepull reads a pre-pull pod. It keeps no pointer into it.
func observePrepull(pod *corev1.Pod) prepull.Pod {
	ready := podsigns.Condition(pod, corev1.PodReady)
	seen := prepull.Pod{
		Node: targetOf(pod), Images: pod.Labels[runnerpod.LabelImages], Leaving: pod.DeletionTimestamp != nil,
		Ready: ready != nil && ready.Status == corev1.ConditionTrue,
	}
	switch {
	case seen.Ready:
	case pod.Status.Phase == corev1.PodFailed:
		seen.Problem = oneLine(strings.Trim(pod.Status.Reason+": "+pod.Status.Message, ": "), podsigns.LongestWaiting)
	default:
		seen.Problem = podsigns.Trouble(pod)
	}
	return seen
}

// targetOf is the node that a DaemonSet's pod is for. The DaemonSet's controller names it in the pod's affinity, and the scheduler binds it.
func targetOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" || pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// TrimPrepullPod removes the fields of a pre-pull pod that this package does not read, before it enters a cache (P8): the cache holds one for
// each node.
func TrimPrepullPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: map[string]string{
				runnerpod.LabelPrepull: pod.Labels[runnerpod.LabelPrepull], runnerpod.LabelImages: pod.Labels[runnerpod.LabelImages],
			},
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: oneLine(pod.Status.Message, podsigns.LongestWaiting)},
	}
	if pod.Spec.NodeName == "" && pod.Spec.Affinity != nil {
		trimmed.Spec.Affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled} {
		if c := podsigns.Condition(pod, kind); c != nil {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions,
				corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: oneLine(c.Message, podsigns.LongestWaiting)})
		}
	}
	trimmed.Status.InitContainerStatuses = waitingOnly(pod.Status.InitContainerStatuses)
	trimmed.Status.ContainerStatuses = waitingOnly(pod.Status.ContainerStatuses)
	return trimmed, nil
}

func waitingOnly(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range statuses {
		if w := trimWaiting(s.State.Waiting); w != nil {
			kept = append(kept, corev1.ContainerStatus{Name: s.Name, State: corev1.ContainerState{Waiting: w}})
		}
	}
	return kept
}

// classVersion tells one state of a RuntimeClass from another.
func classVersion(class *nodev1.RuntimeClass) string {
	if class == nil {
		return ""
	}
	return string(class.UID) + " " + class.ResourceVersion
}
