package runnerdeployment

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerowner"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// same reports whether a status says what the deployment has already, the autoscaler's part aside.
func same(before, after v1alpha1.RunnerDeploymentStatus) bool {
	before.Autoscaling, after.Autoscaling = nil, nil
	return equality.Semantic.DeepEqual(before, after)
}

// statusOf adds up what the sets say. The conditions keep the times of those before.
func statusOf(d *v1alpha1.RunnerDeployment, wish Wish, sets []v1alpha1.RunnerReplicaSet, invalid error, now time.Time) v1alpha1.RunnerDeploymentStatus {
	status := v1alpha1.RunnerDeploymentStatus{
		ObservedGeneration: d.Generation, DesiredReplicas: ptr.To(int32(wish.Desired)), TemplateHash: wish.Hash,
		Selector: runnerpod.LabelDeployment + "=" + d.Name, Conditions: d.Status.DeepCopy().Conditions,
	}
	var present *v1alpha1.RunnerReplicaSet
	for i := range sets {
		of := &sets[i].Status.RunnerCounts
		status.Replicas += of.Replicas
		status.Starting += of.Starting
		status.Idle += of.Idle
		status.Busy += of.Busy
		status.Terminating += of.Terminating
		status.Finished += of.Finished
		if sets[i].Labels[runnerpod.LabelTemplateHash] == wish.Hash && (present == nil || sets[i].DeletionTimestamp == nil) {
			present, status.UpdatedReplicas = &sets[i], of.Replicas
		}
	}
	c := conditions{list: &status.Conditions, generation: d.Generation, now: now}
	c.valid(invalid)
	c.available(wish, status.RunnerCounts)
	c.progressing(wish, sets, present, status, invalid)
	if slices.Contains(d.Finalizers, runnerpod.FinalizerRegistration) {
		c.set(v1alpha1.ConditionDeletionProtected, true, runnerpod.ReasonFinalizer, runnerpod.HeldMessage(runnerpod.FinalizerRegistration, d.Namespace))
	}
	runnerowner.Scaling{Spec: d.Spec.Autoscaling, Status: d.Status.Autoscaling}.Show(c.list, wish.Terminating, d.Generation, now)
	if wish.Terminating {
		c.set(v1alpha1.ConditionDraining, true, "WaitingForRunners",
			fmt.Sprintf("being deleted; waiting for %d busy runners to finish", status.Busy))
	}
	for _, kind := range []string{v1alpha1.ConditionRemovalBlocked, v1alpha1.ConditionOutdated} {
		c.collect(kind, sets)
	}
	return status
}

type conditions struct {
	list       *[]metav1.Condition
	generation int64
	now        time.Time
}

func (c conditions) set(kind string, on bool, reason, message string) {
	value := metav1.ConditionFalse
	if on {
		value = metav1.ConditionTrue
	}
	meta.SetStatusCondition(c.list, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now.Truncate(time.Second)),
	})
}

func (c conditions) valid(invalid error) {
	if invalid != nil {
		c.set(v1alpha1.ConditionValid, false, "InvalidTemplate", invalid.Error())
		return
	}
	c.set(v1alpha1.ConditionValid, true, "TemplateValid", "pods can be created from the template")
}

func (c conditions) available(wish Wish, of v1alpha1.RunnerCounts) {
	switch {
	case of.Idle+of.Busy > 0:
		c.set(v1alpha1.ConditionAvailable, true, "RunnersAvailable", "runners are available")
	case wish.Desired == 0:
		c.set(v1alpha1.ConditionAvailable, true, "NoneDesired", "no runners are desired")
	default:
		c.set(v1alpha1.ConditionAvailable, false, "NoRunnerReady", "no runner is ready yet")
	}
}

func (c conditions) progressing(wish Wish, sets []v1alpha1.RunnerReplicaSet, present *v1alpha1.RunnerReplicaSet, status v1alpha1.RunnerDeploymentStatus, invalid error) {
	const kind = v1alpha1.ConditionProgressing
	switch {
	case wish.Terminating:
		c.set(kind, true, "Draining", "being deleted")
	case invalid != nil:
		c.set(kind, false, "InvalidTemplate", invalid.Error())
	case present == nil || present.DeletionTimestamp != nil:
		c.set(kind, true, "RollingOut", "creating a RunnerReplicaSet for the current template")
	case len(sets) > 1:
		c.set(kind, true, "RollingOut", fmt.Sprintf("%d runners have the current template, %d an older one; busy runners finish their jobs first",
			status.UpdatedReplicas, status.Replicas-status.UpdatedReplicas))
	default:
		if of := meta.FindStatusCondition(present.Status.Conditions, kind); of != nil {
			c.set(kind, of.Status == metav1.ConditionTrue, of.Reason, of.Message)
		} else {
			c.set(kind, true, "Scaling", "creating or removing runners")
		}
	}
}

// collect is on when it is on for a set, with that one's words.
func (c conditions) collect(kind string, sets []v1alpha1.RunnerReplicaSet) {
	var off *metav1.Condition
	for i := range sets {
		of := meta.FindStatusCondition(sets[i].Status.Conditions, kind)
		if of != nil && of.Status == metav1.ConditionTrue {
			c.set(kind, true, of.Reason, sets[i].Name+": "+of.Message)
			return
		}
		if of != nil {
			off = of
		}
	}
	switch {
	case off != nil:
		c.set(kind, false, off.Reason, off.Message)
	case meta.FindStatusCondition(*c.list, kind) != nil:
		c.set(kind, false, "NoneLeft", "no RunnerReplicaSet reports it any more")
	}
}
