package registered

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// annotations that Observe reads.
var annotations = []string{
	runnerpod.AnnotationRegistration, runnerpod.AnnotationRunnerID, runnerpod.AnnotationRunnerName,
	runnerpod.AnnotationRegistered, runnerpod.AnnotationUnseen, runnerpod.AnnotationUnregistered,
	runnerpod.AnnotationSecretMissing,
}

// TrimPod removes the fields of a self-registering runner's pod that Observe does not read, before it enters the cache (P8).
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds, Finalizers: pod.Finalizers,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, Tolerations: nodes.MatterForDepartures(pod.Spec.Tolerations)},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason},
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for _, key := range annotations {
		if value, has := pod.Annotations[key]; has {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, key, value)
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		trimmed := corev1.ContainerStatus{Name: s.Name, Ready: s.Ready, State: trimState(s.State)}
		trimmed.LastTerminationState.Terminated = trimTerminated(s.LastTerminationState.Terminated)
		kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, trimmed)
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if w := trimWaiting(s.State.Waiting); w != nil {
			kept.Status.InitContainerStatuses = append(kept.Status.InitContainerStatuses,
				corev1.ContainerStatus{Name: s.Name, State: corev1.ContainerState{Waiting: w}})
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.ContainersReady} {
		if c := podsigns.Condition(pod, kind); c != nil {
			trimmed := corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}
			if kind == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				trimmed.Reason, trimmed.Message = c.Reason, podsigns.OneLine(c.Message, podsigns.LongestWaiting)
			}
			kept.Status.Conditions = append(kept.Status.Conditions, trimmed)
		}
	}
	if podsigns.Collected(pod) || podsigns.ByKubelet(pod) {
		kept.Status.Conditions = append(kept.Status.Conditions,
			corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: podsigns.Condition(pod, corev1.DisruptionTarget).Reason})
	}
	if pod.Status.Reason == podsigns.ReasonEvicted {
		kept.Status.Message = pod.Status.Message
	}
	return kept, nil
}

func trimState(s corev1.ContainerState) corev1.ContainerState {
	kept := corev1.ContainerState{Waiting: trimWaiting(s.Waiting), Terminated: trimTerminated(s.Terminated)}
	if s.Running != nil {
		kept.Running = &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}
	}
	return kept
}

func trimTerminated(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	return &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason, FinishedAt: t.FinishedAt}
}

func trimWaiting(w *corev1.ContainerStateWaiting) *corev1.ContainerStateWaiting {
	if w == nil {
		return nil
	}
	return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: podsigns.OneLine(w.Message, podsigns.LongestWaiting)}
}
