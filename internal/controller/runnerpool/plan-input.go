package runnerpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// podView is what this package knows of one observed pod: a value without pointers into the cache.
type podView struct {
	namespace, name, pool string
	uid, resourceVersion  string
	templateHash          string
	created               time.Time
	placed                time.Time // when it was bound to a node; zero while it waits for one
	deleting              time.Time // when its deletion began; zero when it is not being deleted
	terminal              bool
	ready                 bool            // the runner can take work
	running               bool            // the runner's container runs
	signs                 lifecycle.Signs // of work, that this observation alone shows
	defect                string          // why it can never take work
	failed                bool            // terminal, and not because its work is done
	end                   ending
}

// ending is how a terminal pod ended.
type ending struct {
	at       time.Time
	exitCode int32
	exited   bool // exitCode is known
	reason   string
}

// observe reads a pod. It keeps no pointer into it.
func observe(pod *corev1.Pod) podView {
	v := podView{
		namespace: pod.Namespace, name: pod.Name, pool: pod.Labels[runnerpod.LabelPool],
		uid: string(pod.UID), resourceVersion: pod.ResourceVersion,
		templateHash: pod.Labels[runnerpod.LabelTemplateHash],
		created:      pod.CreationTimestamp.Time,
		terminal:     pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	if pod.DeletionTimestamp != nil {
		// The timestamp is when the grace period ends, not when the deletion began.
		v.deleting = pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	if pod.Spec.NodeName != "" {
		v.placed = v.created
		if c := condition(pod, corev1.PodScheduled); c != nil && !c.LastTransitionTime.IsZero() {
			v.placed = c.LastTransitionTime.Time
		}
	}
	poller, runner := container(pod, runnerpod.ContainerPoller), container(pod, runnerpod.ContainerRunner)
	v.running = runner != nil && runner.State.Running != nil
	v.ready = !v.terminal && v.running && runner.Ready && poller != nil && poller.State.Running != nil
	v.signs = signsOfWork(pod, poller, runner)
	if v.signs.Work() == "" && !v.terminal && runner != nil && runner.State.Terminated != nil {
		v.defect = "the runner has ended before it was given a job: " + runner.State.Terminated.Reason
	}
	if v.terminal {
		v.end = endOf(pod, runner)
		traded := poller != nil && poller.State.Terminated != nil && poller.State.Terminated.ExitCode == 0
		v.failed = pod.Status.Phase == corev1.PodFailed && !traded
	}
	return v
}

// signsOfWork reads the signs of work that one observation shows (EXCL-4).
func signsOfWork(pod *corev1.Pod, poller, runner *corev1.ContainerStatus) lifecycle.Signs {
	return lifecycle.Signs{
		Owner:       pod.Labels[runnerpod.LabelOwner],
		PollerEnded: poller != nil && poller.State.Terminated != nil,
		NotReady:    wasReady(pod, runner),
	}
}

// wasReady says whether a running runner that is not ready has been so before. The condition begins as false when the
// pod is placed; that it has changed since the runner was started means that it was true.
func wasReady(pod *corev1.Pod, runner *corev1.ContainerStatus) bool {
	if runner == nil || runner.State.Running == nil || runner.Ready {
		return false
	}
	c := condition(pod, corev1.ContainersReady)
	return c != nil && c.Status == corev1.ConditionFalse &&
		c.LastTransitionTime.After(runner.State.Running.StartedAt.Time)
}

func endOf(pod *corev1.Pod, runner *corev1.ContainerStatus) ending {
	end := ending{reason: pod.Status.Reason}
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

func container(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// TrimPod takes out of a pod what this package does not read, before it enters the cache (P8).
func TrimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	statuses := make([]corev1.ContainerStatus, 0, len(pod.Status.ContainerStatuses))
	for _, s := range pod.Status.ContainerStatuses {
		kept := corev1.ContainerStatus{Name: s.Name, Ready: s.Ready}
		if s.State.Running != nil {
			kept.State.Running = &corev1.ContainerStateRunning{StartedAt: s.State.Running.StartedAt}
		}
		if t := s.State.Terminated; t != nil {
			kept.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: t.ExitCode, Reason: t.Reason, FinishedAt: t.FinishedAt}
		}
		statuses = append(statuses, kept)
	}
	var conditions []corev1.PodCondition
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.ContainersReady} {
		if c := condition(pod, kind); c != nil {
			conditions = append(conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Reason: pod.Status.Reason, Conditions: conditions, ContainerStatuses: statuses},
	}, nil
}

// The defaults of the spec's fields, for pools that were made without the API server's defaulting.
const (
	defaultReplicas     = 1
	defaultStartTimeout = 10 * time.Minute
)

// leaveTimeout is how long a pod whose deletion was accepted holds its place in the pool.
const leaveTimeout = 5 * time.Minute

// wishOf reads what a pool wants.
func wishOf(pool *v1alpha1.RunnerPool, templateHash string) lifecycle.Wish {
	desired := int(ptr.Deref(pool.Spec.Replicas, defaultReplicas))
	wish := lifecycle.Wish{
		Desired: desired, TemplateHash: templateHash,
		StartTimeout: defaultStartTimeout, LeaveTimeout: leaveTimeout,
		Terminating: pool.DeletionTimestamp != nil,
	}
	if t := pool.Spec.Provisioning.StartTimeout; t != nil {
		wish.StartTimeout = t.Duration
	}
	wish.MaxUnavailable = share(ptr.Deref(pool.Spec.Rollout.MaxUnavailable, intstr.FromString("5%")), desired, false)
	wish.MaxSurge = share(ptr.Deref(pool.Spec.Rollout.MaxSurge, intstr.FromInt32(0)), desired, true)
	return wish
}

// share is a number, or a percentage of total. The API server has checked how it is written; what it cannot be is 0.
func share(value intstr.IntOrString, total int, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, total, up)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
