package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// containerObserved is what the worker knows of one container.
type containerObserved struct {
	stage     stage
	id        string
	startedAt time.Time
	exit      sandbox.Exit // of an exited one
	ready     bool         // of a running one: its readiness probe says so, or it has none
	starting  bool         // of a running one: its startup probe has not succeeded yet
	waiting   waiting      // of an unstarted one
}

// waiting is why a container does not run yet.
type waiting struct{ reason, message string }

// observed is all that a pod's status is made from.
type observed struct {
	containers map[string]containerObserved // by name; a container that is not there has not started
	prepared   bool
	removed    bool
	stopping   bool // what has not started never will
	expired    bool // activeDeadlineSeconds are over
	refusal    *sandbox.InvalidError
	machine    machine
	now        time.Time
}

// podStatus is the status a kubelet would report. It keeps what others put there (conditions such as PodScheduled), and is equal to the
// pod's present status when nothing has changed.
func podStatus(pod *corev1.Pod, o observed) corev1.PodStatus {
	st := *pod.Status.DeepCopy()
	st.ObservedGeneration = pod.Generation
	st.HostIP = o.machine.HostIP
	st.HostIPs = []corev1.HostIP{{IP: o.machine.HostIP}}
	if st.StartTime == nil {
		now := metav1.NewTime(o.now).Rfc3339Copy()
		st.StartTime = &now
	}
	if o.prepared || len(st.PodIPs) > 0 {
		st.PodIP = o.machine.PodIP
		st.PodIPs = []corev1.PodIP{{IP: o.machine.PodIP}}
	}
	initialized := initialized(pod, o)
	initializing := len(pod.Spec.InitContainers) > 0
	st.InitContainerStatuses = containerStatuses(pod.Spec.InitContainers, st.InitContainerStatuses, o, initializing)
	st.ContainerStatuses = containerStatuses(pod.Spec.Containers, st.ContainerStatuses, o, initializing)
	for i := range pod.Spec.InitContainers { // one that has succeeded counts as ready
		c, status := &pod.Spec.InitContainers[i], &st.InitContainerStatuses[i]
		if end := status.State.Terminated; end != nil && !isSidecar(c) {
			status.Ready = succeeded(o.containers[c.Name]) && end.ExitCode == 0
		}
	}
	st.Phase = phase(pod, o)
	if o.expired && st.Phase == corev1.PodFailed && !terminal(pod.Status.Phase) {
		st.Reason, st.Message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	}
	if ended := startAgain(pod, o); st.Phase == corev1.PodFailed && !terminal(pod.Status.Phase) && !o.stopping && ended != "" {
		st.Reason = "ContainerEnded"
		st.Message = "container " + ended + " has exited, and the Bullpen node agent restarts no containers: the pod's owner creates another pod"
	}
	setConditions(&st, pod, o, initialized)
	return st
}

func phase(pod *corev1.Pod, o observed) corev1.PodPhase {
	if terminal(pod.Status.Phase) {
		return pod.Status.Phase // the last word
	}
	started, ended, failed := 0, 0, false
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if seen := o.containers[c.Name]; seen.stage == exited && !succeeded(seen) && !isSidecar(c) {
			failed = true
		}
	}
	for _, c := range pod.Spec.Containers {
		seen := o.containers[c.Name]
		if seen.stage != unstarted {
			started++
		}
		if seen.stage == exited {
			ended++
			failed = failed || !succeeded(seen)
		}
	}
	anyRunning := false
	for _, seen := range o.containers {
		anyRunning = anyRunning || seen.stage == running
	}
	switch {
	case !o.stopping && startAgain(pod, o) != "", o.expired && !anyRunning:
		return corev1.PodFailed
	case ended == len(pod.Spec.Containers) && anyRunning: // sidecars
		return corev1.PodRunning
	case ended == len(pod.Spec.Containers) && !failed:
		return corev1.PodSucceeded
	case ended == len(pod.Spec.Containers), !anyRunning && (o.stopping || failed && started == 0):
		return corev1.PodFailed
	case started == len(pod.Spec.Containers), started > 0 && o.stopping:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// startAgain names a container that has ended although a kubelet would restart it. This agent never restarts one: the pod has failed, and its owner
// (a ReplicaSet, a Job) makes another. Once all containers have started, a pod goes on without a sidecar that has exited.
func startAgain(pod *corev1.Pod, o observed) string {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		seen := o.containers[c.Name]
		switch {
		case seen.stage != exited:
		case isSidecar(c):
			if !allStarted(pod, o) {
				return c.Name
			}
		case !succeeded(seen) && pod.Spec.RestartPolicy != corev1.RestartPolicyNever && pod.Spec.RestartPolicy != "":
			return c.Name
		}
	}
	for _, c := range pod.Spec.Containers {
		seen := o.containers[c.Name]
		switch {
		case seen.stage != exited:
		case pod.Spec.RestartPolicy == corev1.RestartPolicyAlways, pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && !succeeded(seen):
			return c.Name
		}
	}
	return ""
}

func allStarted(pod *corev1.Pod, o observed) bool {
	return !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return o.containers[c.Name].stage == unstarted })
}

// isSidecar reports whether an init container runs beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// succeeded reports whether a container succeeded. NODE-4: an end that was not observed is no success, whatever its code.
func succeeded(c containerObserved) bool { return c.exit.Code == 0 && !c.exit.Unknown }

// initialized reports whether init containers let the others start: sidecars run, and the rest has succeeded. That stays so.
func initialized(pod *corev1.Pod, o observed) bool {
	return len(incomplete(pod, o)) == 0
}

func incomplete(pod *corev1.Pod, o observed) []string {
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return o.containers[c.Name].stage != unstarted }) {
		return nil
	}
	var names []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		seen := o.containers[c.Name]
		if done := seen.stage == exited && succeeded(seen); isSidecar(c) && (seen.stage != running || seen.starting) || !isSidecar(c) && !done {
			names = append(names, c.Name)
		}
	}
	return names
}

func containerStatuses(specs []corev1.Container, old []corev1.ContainerStatus, o observed, initializing bool) []corev1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	statuses := make([]corev1.ContainerStatus, 0, len(specs))
	for _, c := range specs {
		st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: ""}
		if i := slices.IndexFunc(old, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
			st = old[i]
			if st.State.Terminated != nil { // nothing is ever started again, so this cannot change
				statuses = append(statuses, st)
				continue
			}
		}
		fillStatus(&st, o, initializing)
		statuses = append(statuses, st)
	}
	return statuses
}

func fillStatus(st *corev1.ContainerStatus, o observed, initializing bool) {
	seen := o.containers[st.Name]
	isRunning := seen.stage == running
	st.Ready = isRunning && seen.ready
	started := isRunning && !seen.starting
	st.Started = &started
	if seen.id != "" {
		st.ContainerID = seen.id
	}
	switch seen.stage {
	case unstarted:
		st.State = corev1.ContainerState{Waiting: waitingState(seen, o, initializing)}
	case running:
		st.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(seen.startedAt)}}
	case exited:
		st.State = corev1.ContainerState{Terminated: terminatedState(seen)}
	}
}

func waitingState(seen containerObserved, o observed, initializing bool) *corev1.ContainerStateWaiting {
	switch {
	case o.refusal != nil:
		return &corev1.ContainerStateWaiting{Reason: o.refusal.Reason, Message: o.refusal.Message}
	case seen.waiting.reason != "":
		return &corev1.ContainerStateWaiting{Reason: seen.waiting.reason, Message: seen.waiting.message}
	case initializing: // whether or not its turn has come, as a kubelet says
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

func terminatedState(seen containerObserved) *corev1.ContainerStateTerminated {
	reason := seen.exit.Reason
	switch {
	case reason != "":
	case succeeded(seen):
		reason = "Completed"
	default:
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: seen.exit.Code, Reason: reason, Message: seen.exit.Message,
		StartedAt: seconds(seen.exit.StartedAt), FinishedAt: seconds(seen.exit.FinishedAt), ContainerID: seen.id,
	}
}

// seconds is a time as the API server gives it back.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t).Rfc3339Copy()
}

func setConditions(st *corev1.PodStatus, pod *corev1.Pod, o observed, initialized bool) {
	set := func(kind corev1.PodConditionType, c corev1.PodCondition) {
		c.Type, c.ObservedGeneration = kind, pod.Generation
		setCondition(st, c, o.now)
	}
	if !slices.ContainsFunc(st.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }) {
		set(corev1.PodScheduled, verdict(true, "", "")) // bound to the node without a scheduler
	}
	set(corev1.PodReadyToStartContainers, verdict(o.prepared && !o.removed && !terminal(st.Phase), "", ""))
	set(corev1.PodInitialized, initializedCondition(st, pod, o))
	ready := containersReady(st, pod, initialized)
	set(corev1.ContainersReady, ready)
	if unmet := unmetGates(st, pod); ready.Status == corev1.ConditionTrue && unmet != "" {
		ready = verdict(false, "ReadinessGatesNotReady", unmet)
	}
	set(corev1.PodReady, ready)
}

// verdict is a condition that has a reason and a message when it is false.
func verdict(ok bool, reason, message string) corev1.PodCondition {
	if ok {
		return corev1.PodCondition{Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func initializedCondition(st *corev1.PodStatus, pod *corev1.Pod, o observed) corev1.PodCondition {
	if st.Phase == corev1.PodSucceeded {
		return corev1.PodCondition{Status: corev1.ConditionTrue, Reason: "PodCompleted"}
	}
	names := incomplete(pod, o)
	return verdict(len(names) == 0, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", names))
}

func containersReady(st *corev1.PodStatus, pod *corev1.Pod, initialized bool) corev1.PodCondition {
	switch st.Phase {
	case corev1.PodSucceeded:
		return verdict(false, "PodCompleted", "")
	case corev1.PodFailed:
		return verdict(false, "PodFailed", "")
	}
	var unready []string
	for i, c := range st.InitContainerStatuses {
		if isSidecar(&pod.Spec.InitContainers[i]) && !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	for _, c := range st.ContainerStatuses {
		if !c.Ready {
			unready = append(unready, c.Name)
		}
	}
	return verdict(initialized && len(unready) == 0, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready))
}

// unmetGates says which readiness gates are not true yet, "" for none.
func unmetGates(st *corev1.PodStatus, pod *corev1.Pod) string {
	var unmet []string
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(st.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			unmet = append(unmet, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", string(gate.ConditionType)))
		case st.Conditions[i].Status != corev1.ConditionTrue:
			unmet = append(unmet, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", string(gate.ConditionType), st.Conditions[i].Status))
		}
	}
	return strings.Join(unmet, ", ")
}

func setCondition(st *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	i := slices.IndexFunc(st.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if old := st.Conditions[i]; old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	st.Conditions[i] = c
}
