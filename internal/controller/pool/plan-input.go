package pool

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// podView is what this package knows of one observed pod: a value without pointers into the cache.
type podView struct {
	namespace, name, pool string
	uid, resourceVersion  string
	templateHash          string
	created               time.Time
	placed                time.Time           // when it was bound to a node; zero while it waits for one
	node                  string              // the name of that node
	tolerations           []corev1.Toleration // the tolerations that matter when its node is removed
	deleting              time.Time           // when its deletion began; zero when it is not being deleted
	deadline              time.Time           // when its grace period ends, if it is being deleted
	finalizers            string              // the finalizers that keep it, if it is being deleted
	terminal              bool                // it has ended
	attended              bool                // it has ended, and injected containers still run
	ready                 bool                // the runner can take work
	readySince            time.Time           // since when, if the pod shows it
	waiting               string              // what it waits for before it can take work, in the words of the scheduler or the kubelet
	running               bool                // the runner's container runs
	signs                 lifecycle.Signs     // of work, that this observation alone shows
	defect                string              // why it can never take work
	failed                bool                // terminal, and not because its work is done
	end                   ending
	// broke is how the runner's container ended, of a pod that is not terminal and has a defect for that.
	broke ending
}

// ending is how a terminal pod ended.
type ending struct {
	at       time.Time
	exitCode int32
	exited   bool // exitCode is known
	reason   string
	evicted  string // why its kubelet evicted it, in a sentence; empty if it did not
}

// observe reads a pod. It keeps no pointer into it.
func observe(pod *corev1.Pod) podView {
	v := podView{
		namespace: pod.Namespace, name: pod.Name, pool: pod.Labels[runnerpod.LabelPool],
		uid: string(pod.UID), resourceVersion: pod.ResourceVersion,
		templateHash: pod.Labels[runnerpod.LabelTemplateHash],
		created:      pod.CreationTimestamp.Time,
		terminal:     podsigns.Ended(pod), // POD-3
		attended:     podsigns.Attended(pod),

		tolerations: nodes.MatterForDepartures(pod.Spec.Tolerations),
	}
	if pod.DeletionTimestamp != nil {
		// The timestamp is when the grace period ends, not when the deletion began.
		v.deadline = pod.DeletionTimestamp.Time
		v.deleting = v.deadline.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
		v.finalizers = strings.Join(pod.Finalizers, ", ")
	}
	if v.node = pod.Spec.NodeName; v.node != "" {
		v.placed = v.created
		if c := podsigns.Condition(pod, corev1.PodScheduled); c != nil && !c.LastTransitionTime.IsZero() {
			v.placed = c.LastTransitionTime.Time
		}
	}
	poller, runner := podsigns.Container(pod, runnerpod.ContainerPoller), podsigns.Container(pod, runnerpod.ContainerRunner)
	v.running = runner != nil && runner.State.Running != nil
	kit := podsigns.Container(pod, runnerpod.ContainerBuildKit)
	// Without its daemon a runner takes no job. A container that has started never waits again, so ready does not end by that.
	equipped := kit == nil || kit.State.Waiting == nil
	v.ready = !v.terminal && podsigns.Jobless(pod, runner) && poller != nil && poller.State.Running != nil && equipped
	if c := podsigns.Condition(pod, corev1.ContainersReady); v.ready && c != nil && c.Status == corev1.ConditionTrue {
		v.readySince = c.LastTransitionTime.Time
	}
	if !v.ready && !v.terminal {
		v.waiting = podsigns.WaitingFor(pod)
	}
	v.signs = signsOfWork(pod, poller, runner)
	if v.signs.Work() == "" && !v.terminal {
		switch {
		case runner != nil && runner.State.Terminated != nil:
			v.defect = "the runner exited before it received a job: " + runner.State.Terminated.Reason
			v.broke = ending{exitCode: runner.State.Terminated.ExitCode, exited: true, reason: runner.State.Terminated.Reason}
		case podsigns.NeverStarted(poller):
			v.defect = "the poller could not start: " + oneLine(poller.State.Terminated.Message, podsigns.LongestWaiting)
		case kit != nil && kit.State.Terminated != nil: // whatever its exit code: it ends after the runner
			v.defect = strings.TrimSuffix("the container buildkit has exited: "+oneLine(kit.State.Terminated.Message, podsigns.LongestWaiting), ": ")
		}
	}
	if v.terminal {
		v.end = endOf(pod, runner)
		traded := poller != nil && poller.State.Terminated != nil && poller.State.Terminated.ExitCode == 0
		v.failed = podsigns.Failed(pod) && !traded
	}
	return v
}

// signsOfWork reads the signs of work that one observation shows (EXCL-4).
func signsOfWork(pod *corev1.Pod, poller, runner *corev1.ContainerStatus) lifecycle.Signs {
	_, taken := podsigns.Taken(pod, runner)
	return lifecycle.Signs{
		Owner:       pod.Labels[runnerpod.LabelOwner],
		PollerEnded: podsigns.PollerEnded(poller),
		NotReady:    taken,
	}
}

func endOf(pod *corev1.Pod, runner *corev1.ContainerStatus) ending {
	end := ending{reason: pod.Status.Reason, evicted: podsigns.Evicted(pod, runner)}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end.at) {
			end.at = t.FinishedAt.Time
		}
	}
	if runner != nil && runner.State.Terminated != nil {
		end.exitCode, end.exited = runner.State.Terminated.ExitCode, true
		if end.reason == "" {
			end.reason = runner.State.Terminated.Reason
		}
	}
	if end.reason == "" {
		end.reason = string(pod.Status.Phase)
	}
	return end
}

// TrimPod removes the fields of a pod that this package does not read, before it enters the cache (P8).
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	statuses := make([]corev1.ContainerStatus, 0, len(pod.Status.ContainerStatuses))
	for _, s := range pod.Status.ContainerStatuses {
		kept := corev1.ContainerStatus{Name: s.Name, Ready: s.Ready}
		kept.State.Waiting = trimWaiting(s.State.Waiting)
		if s.State.Running != nil {
			kept.State.Running = &corev1.ContainerStateRunning{StartedAt: s.State.Running.StartedAt}
		}
		if t := s.State.Terminated; t != nil {
			kept.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason, FinishedAt: t.FinishedAt}
			if t.ExitCode != 0 && (podsigns.NeverStarted(&s) || s.Name == runnerpod.ContainerBuildKit) {
				kept.State.Terminated.Message = oneLine(t.Message, podsigns.LongestWaiting)
			}
		}
		statuses = append(statuses, kept)
	}
	var starting []corev1.ContainerStatus
	for _, s := range pod.Status.InitContainerStatuses {
		if w := trimWaiting(s.State.Waiting); w != nil {
			starting = append(starting, corev1.ContainerStatus{Name: s.Name, State: corev1.ContainerState{Waiting: w}})
		}
	}
	var conditions []corev1.PodCondition
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.ContainersReady} {
		if c := podsigns.Condition(pod, kind); c != nil {
			kept := corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}
			if kind == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				kept.Reason, kept.Message = c.Reason, oneLine(c.Message, podsigns.LongestWaiting)
			}
			conditions = append(conditions, kept)
		}
	}
	if podsigns.Collected(pod) || podsigns.ByKubelet(pod) {
		reason := podsigns.Condition(pod, corev1.DisruptionTarget).Reason
		conditions = append(conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason})
	}
	message := ""
	if pod.Status.Reason == podsigns.ReasonEvicted {
		message = pod.Status.Message
	}
	var finalizers []string
	if pod.DeletionTimestamp != nil {
		finalizers = pod.Finalizers
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds, Finalizers: finalizers,
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, Tolerations: nodes.MatterForDepartures(pod.Spec.Tolerations)},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: message, Conditions: conditions,
			InitContainerStatuses: starting, ContainerStatuses: statuses,
		},
	}, nil
}

func trimWaiting(w *corev1.ContainerStateWaiting) *corev1.ContainerStateWaiting {
	if w == nil {
		return nil
	}
	return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: oneLine(w.Message, podsigns.LongestWaiting)}
}

// wishOf reads what a pool wants. last is the number that its status had.
func wishOf(pool *v1alpha1.RunnerPool, templateHash string, decision Decision, last *int32) lifecycle.Wish {
	var decided *int
	if decision.Decided {
		decided = &decision.Desired
	}
	return poolspec.Wish(pool, templateHash, decided, last)
}

// observed is the view as the removal's rule reads it; everReady says that an earlier view was ready.
func (v podView) observed(everReady bool) lifecycle.Observed {
	signs := v.signs
	signs.NotReady = signs.NotReady || everReady && !v.ready && v.running && !v.terminal
	return lifecycle.Observed{UID: v.uid, Ended: v.terminal, Signs: signs}
}

// pod is the view as the remover takes it.
func (v podView) pod(everReady bool) removal.Pod {
	o := v.observed(everReady)
	return removal.Pod{Ref: v.ref(), ResourceVersion: v.resourceVersion, Ended: o.Ended, Signs: o.Signs}
}

// ref names the pod for the fence.
func (v podView) ref() lifecycle.RunnerRef {
	return lifecycle.RunnerRef{Namespace: v.namespace, Name: v.name, UID: v.uid, Owner: v.pool}
}
