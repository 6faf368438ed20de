package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/why"
)

// PoolStatus is what the pool's controller has last said of it; false for a pool that the watch does not show.
func (v *View) PoolStatus(ref dispatch.PoolRef) (why.Pool, bool) {
	obj, ok, err := v.pools.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil || !ok {
		return why.Pool{}, false
	}
	pool, ok := obj.(*v1alpha1.RunnerPool)
	if !ok {
		return why.Pool{}, false
	}
	return poolStatus(pool), true
}

// DescribePools are all pools as their controller has last described them.
func (v *View) DescribePools() []adminapi.Pool {
	var pools []adminapi.Pool
	for _, obj := range v.pools.GetStore().List() {
		if pool, ok := obj.(*v1alpha1.RunnerPool); ok {
			pools = append(pools, describePool(pool))
		}
	}
	return pools
}

func describePool(pool *v1alpha1.RunnerPool) adminapi.Pool {
	known := poolStatus(pool)
	return adminapi.Pool{
		Namespace: pool.Namespace, Name: pool.Name, Labels: slices.Clone(pool.Spec.Labels), Platform: string(known.Platform),
		MilliCPU: known.Shape.MilliCPU, MemoryMB: known.Shape.MemoryMB,
		Desired: known.Desired, Starting: known.Starting, Idle: known.Idle, Busy: known.Busy,
		Terminating: int64(pool.Status.Terminating), Finished: int64(pool.Status.Finished), Deleting: pool.DeletionTimestamp != nil,
		Intake: string(intakeOf(pool)), Autoscaled: poolspec.Autoscales(pool), Problems: append(paused(pool), problems(pool.Status.Conditions, known)...),
	}
}

// intakeOf is open for a pool that was written down before there was the field.
func intakeOf(pool *v1alpha1.RunnerPool) v1alpha1.Intake {
	return cmp.Or(pool.Spec.Intake, v1alpha1.IntakeOpen)
}

// paused is the problem of a pool that hands out no jobs because an administrator paused it.
func paused(pool *v1alpha1.RunnerPool) []adminapi.Problem {
	sentence := ""
	switch intakeOf(pool) {
	case v1alpha1.IntakePaused:
		sentence = "the pool is paused: no jobs are assigned"
	case v1alpha1.IntakeDrained:
		sentence = "the pool is drained: no jobs are assigned, and idle runners are removed"
	default:
		return []adminapi.Problem{}
	}
	if note := pool.Annotations[v1alpha1.AnnotationIntakeNote]; note != "" {
		sentence += " (" + note + ")"
	}
	return []adminapi.Problem{{Condition: string(intakeOf(pool)), Sentence: sentence}}
}

// problems are the conditions that need attention, in one order.
func problems(conditions []metav1.Condition, known why.Pool) []adminapi.Problem {
	found := []adminapi.Problem{}
	for _, kind := range []string{
		v1alpha1.ConditionLabelConflict, v1alpha1.ConditionOutdated, v1alpha1.ConditionStuckTerminating, v1alpha1.ConditionRemovalBlocked, v1alpha1.ConditionRefused,
		v1alpha1.ConditionImagesPulled, v1alpha1.ConditionStarved, v1alpha1.ConditionSaturated,
	} {
		switch {
		case kind == v1alpha1.ConditionSaturated && known.Saturated == "":
			continue // it holds on for a while after a runner is idle again
		case kind == v1alpha1.ConditionImagesPulled && known.PullFailed != "":
			found = append(found, adminapi.Problem{Condition: kind, Sentence: known.PullFailed})
			continue
		case kind == v1alpha1.ConditionImagesPulled:
			continue // that they are there is no problem
		}
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			found = append(found, adminapi.Problem{Condition: kind, Sentence: c.Message})
		}
	}
	if known.Starved != "" && !slices.ContainsFunc(found, func(p adminapi.Problem) bool { return p.Condition == v1alpha1.ConditionStarved }) {
		found = append(found, adminapi.Problem{Condition: v1alpha1.ConditionProgressing, Sentence: known.Starved})
	}
	return found
}

// PodsOfPool are the runner pods of a pool, or with an empty name of all.
func (v *View) PodsOfPool(ref dispatch.PoolRef) []admin.RunnerPod {
	var pods []admin.RunnerPod
	for _, obj := range v.pods.GetStore().List() {
		pod, ok := obj.(*corev1.Pod)
		if ok && (ref.Name == "" || pod.Namespace == ref.Namespace && pod.Labels[runnerpod.LabelPool] == ref.Name) {
			pods = append(pods, toRunnerPod(pod))
		}
	}
	return pods
}

func toRunnerPod(pod *corev1.Pod) admin.RunnerPod {
	return admin.RunnerPod{
		Pod: toPod(pod), Node: pod.Spec.NodeName, CreatedAt: pod.CreationTimestamp.Time,
		Ready: slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }),
		Ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || podsigns.Stopped(pod), // POD-3
	}
}

func poolStatus(pool *v1alpha1.RunnerPool) why.Pool {
	own, _ := toPool(pool)
	s := pool.Status
	out := why.Pool{
		Ref: own.Ref(), Platform: own.Platform, Shape: own.Shape,
		Idle: int64(s.Idle), Busy: int64(s.Busy), Starting: int64(s.Starting), Replicas: int64(s.Replicas),
	}
	if s.DesiredReplicas != nil {
		out.Desired = int64(*s.DesiredReplicas)
	}
	said := func(kind string, status metav1.ConditionStatus) string {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil && c.Status == status {
			return c.Message
		}
		return ""
	}
	out.Saturated, out.Starved = said(v1alpha1.ConditionSaturated, metav1.ConditionTrue), said(v1alpha1.ConditionStarved, metav1.ConditionTrue)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionImagesPulled); c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPullFailed {
		out.PullFailed = c.Message
	}
	if out.Idle > 0 { // the condition outlives what it says for a while, so that it does not come and go
		out.Saturated = ""
	}
	progressing := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProgressing)
	if out.Starved == "" && progressing != nil && progressing.Status == metav1.ConditionFalse && out.Idle+out.Busy+out.Starting < out.Desired {
		out.Starved = progressing.Message // a template that is refused, or runners that end before they can take a job
	}
	return out
}
