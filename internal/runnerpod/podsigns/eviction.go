package podsigns

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ReasonEvicted is the reason of a pod that its kubelet has evicted.
const ReasonEvicted = "Evicted"

// Evicted says in a sentence why its kubelet has evicted a pod, and what to do; empty for any other. runner is the status of the container
// in which jobs run, or nil.
func Evicted(pod *corev1.Pod, runner *corev1.ContainerStatus) string {
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != ReasonEvicted {
		return ""
	}
	said := OneLine(strings.TrimSpace(pod.Status.Message), LongestWaiting)
	if said != "" {
		said = ": " + strings.TrimSuffix(said, ".")
	}
	switch {
	case ByKubelet(pod):
		return "evicted: its node was short of resources" + said + ". Look for pods on that node that use more than they request"
	case runner == nil || runner.State.Terminated == nil: // it was never let start
		return "evicted" + said
	default: // TEN-6: a kubelet sets no condition on a pod that has passed a limit of its own
		return "evicted: it exceeded its limit of ephemeral storage" + said + ". Raise its limit of ephemeral storage (spec.resources.ephemeralStorage of a RunnerPool, or the sizeLimit of the volume), or make the job write less"
	}
}

// ByKubelet reports whether the pod has the condition by which a kubelet says that it has taken it for its node's sake.
func ByKubelet(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
}
