package podsigns

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// ExitOutdated is what GitHub's runner exits with when GitHub has refused its version at the poll for jobs, since Bullpen's agent sets
// ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE. Refused at its session it exits with 1 (executed with GitHub's runner 2.336.0).
const ExitOutdated = 7

// ReasonPodGC is the reason of the condition DisruptionTarget by which Kubernetes' garbage collector of pods says that it
// has taken a pod for over because its node is gone.
const ReasonPodGC = "DeletionByPodGC"

// Collected reports whether the pod is marked failed only because its node is gone. Its end was not observed, and its
// runner may be busy as long as GitHub says so: it is lost, not finished (POOL-7).
func Collected(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == ReasonPodGC
}

// Taken reports whether a job may have started in a running runner (EXCL-4), and since when it shows that. On Linux the container idle of a
// runner for one job has exited; the kubelet reports that of itself, and it cannot be undone. Other pods, and those of earlier releases, have
// no such container, and show it by the readiness of the runner.
func Taken(pod *corev1.Pod, runner *corev1.ContainerStatus) (since time.Time, taken bool) {
	if runner == nil || runner.State.Running == nil {
		return time.Time{}, false
	}
	if idle := Container(pod, runnerpod.ContainerIdle); idle != nil {
		if idle.State.Terminated == nil {
			return time.Time{}, false
		}
		return idle.State.Terminated.FinishedAt.Time, true
	}
	if !WasReady(pod, runner) {
		return time.Time{}, false
	}
	return Condition(pod, corev1.ContainersReady).LastTransitionTime.Time, true
}

// reasonStartError is what a kubelet gives as the reason of a container whose process was never there: containerd and runc could not start it. No
// process can bring it about, and a container with restartPolicy Never stays so.
const reasonStartError = "StartError"

// NeverStarted reports whether a container has ended without having run, such as when the runtime restarts in the moment of its start.
func NeverStarted(container *corev1.ContainerStatus) bool {
	return container != nil && container.State.Terminated != nil && container.State.Terminated.Reason == reasonStartError
}

// PollerEnded reports whether the poller has exited, so that a configuration may have arrived (EXCL-4), whatever its exit code. One that never
// started has asked for none.
func PollerEnded(poller *corev1.ContainerStatus) bool {
	return poller != nil && poller.State.Terminated != nil && !NeverStarted(poller)
}

// Jobless reports whether a running runner shows for certain that no job has started in it.
func Jobless(pod *corev1.Pod, runner *corev1.ContainerStatus) bool {
	idle := Container(pod, runnerpod.ContainerIdle)
	return runner != nil && runner.State.Running != nil && runner.Ready && (idle == nil || idle.State.Running != nil)
}

// WasReady reports whether a running runner that is not ready has been so before. The condition begins as false when the
// pod is placed; that it has changed since the runner was started means that it was true.
func WasReady(pod *corev1.Pod, runner *corev1.ContainerStatus) bool {
	if runner == nil || runner.State.Running == nil || runner.Ready {
		return false
	}
	c := Condition(pod, corev1.ContainersReady)
	return c != nil && c.Status == corev1.ConditionFalse &&
		c.LastTransitionTime.After(runner.State.Running.StartedAt.Time)
}

// LongestWaiting bounds what is kept of a message, for each pod that waits.
const LongestWaiting = 300

// WaitingFor says what a pod is waiting for, in a line. Without a node it is what the scheduler has said; afterwards
// the first container that the kubelet cannot start, init containers first, because the others only wait for them.
func WaitingFor(pod *corev1.Pod) string {
	container, text, _ := waiting(pod)
	if container != "" {
		return container + ": " + text
	}
	return text
}

// Trouble says what keeps a pod from starting, without the container's name; empty while it waits for what every pod waits for.
func Trouble(pod *corev1.Pod) string {
	if _, text, trouble := waiting(pod); trouble {
		return text
	}
	return ""
}

func waiting(pod *corev1.Pod) (container, text string, trouble bool) {
	if pod.Spec.NodeName == "" {
		if c := Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			return "", reasonAndMessage(c.Reason, c.Message), true
		}
		return "", "", false
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			w := statuses[i].State.Waiting
			if w == nil {
				continue
			}
			if w.Message != "" || w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
				return statuses[i].Name, reasonAndMessage(w.Reason, w.Message), true
			}
			if text == "" {
				container, text = statuses[i].Name, w.Reason
			}
		}
	}
	return container, text, false
}

func reasonAndMessage(reason, message string) string {
	if message == "" {
		return reason
	}
	if reason != "" {
		message = reason + ": " + message
	}
	return OneLine(message, LongestWaiting)
}

// OneLine is the text's first line, or as much of it as fits.
func OneLine(text string, longest int) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > longest {
		return strings.ToValidUTF8(line[:longest], "") + "…"
	}
	return strings.Clone(line)
}

// Container is the status of the container of that name; nil where there is none.
func Container(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// Condition is the pod's condition of that type; nil where there is none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
