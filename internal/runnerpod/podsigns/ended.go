package podsigns

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Ended reports whether no job can run in the pod of a RunnerPool (POD-3): the pod is in a terminal phase, or its poller and its runner
// have both terminated, and are never restarted. Other containers, such as the sidecar of a service mesh, may continue forever, and do not
// count. A pod that is marked ended because its node is gone is lost, and has not ended (POOL-7).
func Ended(pod *corev1.Pod) bool {
	return !Collected(pod) && (terminalPhase(pod) || Stopped(pod))
}

// Stopped reports whether poller and runner have both terminated, in any phase of their pod.
func Stopped(pod *corev1.Pod) bool {
	poller, runner := Container(pod, runnerpod.ContainerPoller), Container(pod, runnerpod.ContainerRunner)
	return poller != nil && runner != nil && poller.State.Terminated != nil && runner.State.Terminated != nil
}

// Attended reports whether a pod has ended while other containers continue in it.
func Attended(pod *corev1.Pod) bool { return Ended(pod) && !terminalPhase(pod) }

// Failed reports whether a pod of a RunnerPool that has ended did so with an error: by its phase, or, where other containers
// continue, by the phase that it would have without them.
func Failed(pod *corev1.Pod) bool {
	if !Attended(pod) {
		return pod.Status.Phase == corev1.PodFailed
	}
	for _, name := range []string{runnerpod.ContainerPoller, runnerpod.ContainerRunner} {
		if Container(pod, name).State.Terminated.ExitCode != 0 {
			return true
		}
	}
	return false
}

func terminalPhase(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
