package registered

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// View is what one pod of a self-registering runner shows: a value without pointers into the cache.
type View struct {
	Namespace, Name, UID, ResourceVersion string
	// Owner is the controller owner, a Runner or a StatefulSet; the zero value for an orphan.
	Owner Owner
	// TemplateHash tells which template it was made from.
	TemplateHash string
	Ephemeral    bool
	// RunnerName is what GitHub knows it by, and RunnerID the registration's id; 0 while that is not known.
	RunnerName string
	RunnerID   int64
	// Target and Credentials say where it is registered and with what. They were written when the pod was made, so that a
	// pod whose owner is gone can still be unregistered.
	Target      registration.Target
	Credentials registration.Credentials
	// KubernetesMode: its jobs may have made pods and Secrets.
	KubernetesMode bool
	// RegistrationTimeout is that of its RunnerSpec; 0 for the default.
	RegistrationTimeout time.Duration

	Created time.Time
	// Placed is when it was bound to Node; zero while it waits for one.
	Placed time.Time
	Node   string
	// Deleting is when its deletion began, and Deadline when its grace period ends; zero when it is not being deleted.
	Deleting, Deadline time.Time
	// Finalizers hold it; Protected says that ours is among them.
	Finalizers string
	Protected  bool

	// Started: its runner's container has been started at some time, as far as the kubelet has reported.
	Started bool
	// Running: its runner's container runs; Ready: and says that no job has reached it.
	Running, Ready bool
	ReadySince     time.Time
	// Waiting is what it waits for before it can take work, in the words of the scheduler or the kubelet.
	Waiting string
	// Signs of work, that this observation alone shows (EXCL-4).
	Signs lifecycle.Signs
	// Registered is when GitHub was first seen to know the runner; zero while that is not known. Unseen is when GitHub's list,
	// read late enough, did not show it. Unregistered is when GitHub has granted its removal; no job starts on it after that.
	Registered, Unseen, Unregistered time.Time
	// SecretMissing is since when it is known that it cannot start, because what it registers with is gone; zero while it is not.
	SecretMissing time.Time

	// Ended: its runner has ended, whatever other containers do, and nothing starts it again (RUN-7).
	Ended bool
	End   Ending
	// Attended: other containers go on in the pod of a runner that has ended.
	Attended bool

	facts       runnerpod.RegistrationFacts
	tolerations []corev1.Toleration // the tolerations that matter when its node is removed
}

// Owner is what stands behind a pod.
type Owner struct{ Kind, Name, UID string }

func (o Owner) reference() metav1.OwnerReference {
	return metav1.OwnerReference{Kind: o.Kind, Name: o.Name, UID: types.UID(o.UID)}
}

// Ending is how a runner has ended.
type Ending struct {
	At time.Time
	// ExitCode of the runner, where Exited says that it is known.
	ExitCode int32
	Exited   bool
	Reason   string
	// Forced: the kubelet has ended the whole pod, and says why (an eviction, a node that shuts down), whatever its runner exited with.
	Forced bool
	// Evicted says in a sentence why the kubelet has evicted the pod; empty if it has not.
	Evicted string
}

// Outdated reports whether GitHub has refused the runner because its version is too old: its image must be renewed.
func (e Ending) Outdated() bool { return e.Exited && e.ExitCode == podsigns.ExitOutdated }

// Succeeded reports whether the runner has done its work and ended by itself, whatever other containers of the pod say.
func (e Ending) Succeeded() bool { return e.Exited && e.ExitCode == 0 }

// Observe reads a pod. It keeps no pointer into it.
func Observe(pod *corev1.Pod) View {
	v := View{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), ResourceVersion: pod.ResourceVersion,
		TemplateHash: pod.Labels[runnerpod.LabelTemplateHash],
		Ephemeral:    pod.Labels[runnerpod.LabelEphemeral] == "true",
		Created:      pod.CreationTimestamp.Time,
		Finalizers:   strings.Join(pod.Finalizers, ", "),
		Registered:   timeIn(pod, runnerpod.AnnotationRegistered),
		Unseen:       timeIn(pod, runnerpod.AnnotationUnseen),
		Unregistered: timeIn(pod, runnerpod.AnnotationUnregistered),

		SecretMissing: timeIn(pod, runnerpod.AnnotationSecretMissing),
		tolerations:   nodes.MatterForDepartures(pod.Spec.Tolerations),
	}
	for _, f := range pod.Finalizers {
		v.Protected = v.Protected || f == runnerpod.FinalizerRegistration
	}
	if o := metav1.GetControllerOfNoCopy(pod); o != nil {
		v.Owner = Owner{o.Kind, o.Name, string(o.UID)}
	}
	if facts, err := runnerpod.RegistrationOf(pod); err == nil {
		v.facts = facts
		v.RunnerName, v.RunnerID, v.KubernetesMode = facts.Name, facts.ID, facts.Kubernetes
		v.Target = registration.Target{
			Enterprise: facts.Enterprise, Organization: facts.Organization, Repository: facts.Repository, RepositoryID: facts.RepositoryID, Group: facts.Group,
		}
		v.Credentials = registration.Credentials{Namespace: pod.Namespace, Secret: facts.Credentials}
		v.RegistrationTimeout = time.Duration(facts.TimeoutSeconds) * time.Second
	}
	if pod.DeletionTimestamp != nil {
		// The timestamp is when the grace period ends, not when the deletion began.
		v.Deadline = pod.DeletionTimestamp.Time
		v.Deleting = v.Deadline.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	if v.Node = pod.Spec.NodeName; v.Node != "" {
		v.Placed = v.Created
		if c := podsigns.Condition(pod, corev1.PodScheduled); c != nil && !c.LastTransitionTime.IsZero() {
			v.Placed = c.LastTransitionTime.Time
		}
	}
	v.observeRunner(pod)
	return v
}

// observeRunner reads what the runner's own container shows.
func (v *View) observeRunner(pod *corev1.Pod) {
	terminal := (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) && !podsigns.Collected(pod)
	runner := podsigns.Container(pod, runnerpod.ContainerRunner)
	stopped := stoppedState(runner)
	v.Started = terminal || runner != nil && (runner.State.Running != nil || stopped != nil)
	v.Attended = !terminal && stopped != nil
	v.Ended = terminal || stopped != nil // RUN-7: a StatefulSet restarts the container, but the runner is over
	v.Running = runner != nil && runner.State.Running != nil && !v.Ended
	v.Ready = v.Running && podsigns.Jobless(pod, runner)
	if v.Ready {
		v.ReadySince = runner.State.Running.StartedAt.Time // another container, which has ended, may keep the condition false for ever
		if c := podsigns.Condition(pod, corev1.ContainersReady); c != nil && c.Status == corev1.ConditionTrue {
			v.ReadySince = c.LastTransitionTime.Time
		}
	}
	if v.Ended {
		v.End = endOf(pod, stopped)
		v.End.Evicted = podsigns.Evicted(pod, runner)
		return
	}
	_, taken := podsigns.Taken(pod, runner)
	v.Signs = lifecycle.Signs{NotReady: taken}
	if !v.Ready {
		v.Waiting = podsigns.WaitingFor(pod)
	}
}

// stoppedState is how the runner's container has ended, this time or an earlier one; nil while it has not.
func stoppedState(runner *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case runner == nil:
		return nil
	case runner.LastTerminationState.Terminated != nil: // the first end is the runner's, what came after did nothing
		return runner.LastTerminationState.Terminated
	default:
		return runner.State.Terminated
	}
}

func endOf(pod *corev1.Pod, stopped *corev1.ContainerStateTerminated) Ending {
	end := Ending{Reason: pod.Status.Reason, Forced: pod.Status.Reason != ""}
	if stopped != nil {
		end.At, end.ExitCode, end.Exited = stopped.FinishedAt.Time, stopped.ExitCode, true
		if end.Reason == "" {
			end.Reason = stopped.Reason
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; stopped == nil && t != nil && t.FinishedAt.After(end.At) {
			end.At = t.FinishedAt.Time
		}
	}
	if end.Reason == "" {
		end.Reason = string(pod.Status.Phase)
	}
	return end
}

// timeIn reads a time from an annotation; zero for none.
func timeIn(pod *corev1.Pod, annotation string) time.Time {
	t, err := time.Parse(time.RFC3339, pod.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Key names the pod.
func (v *View) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: v.Namespace, Name: v.Name}
}

// Ref names the pod for the fence.
func (v *View) Ref() lifecycle.RunnerRef {
	return lifecycle.RunnerRef{Namespace: v.Namespace, Name: v.Name, UID: v.UID, Owner: v.Owner.Name}
}

// besideGrace is what the other containers of a template get to stop in, once the runner has ended: Kubernetes' own default, and not the hours
// that are for jobs.
const besideGrace = 30

// Removal is the pod as removal.Remover takes it.
func (v *View) Removal() removal.Pod {
	return removal.Pod{Ref: v.Ref(), ResourceVersion: v.ResourceVersion, Ended: v.Ended, Grace: besideGrace, Signs: v.Signs}
}
