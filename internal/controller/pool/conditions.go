package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// conditionHold is how long a condition that comes and goes with the load stays on at least: each turn is a write and an
// Event (P5), and a person reads it later than that.
const conditionHold = time.Minute

// blindHold is how long nothing can be decided before the pool says so. A new pool is not in the server's first answer, and
// a server that is rolled misses a question or two: that needs no person.
const blindHold = 10 * time.Second

// facts is what a status is computed from, beside the pool.
type facts struct {
	wish     lifecycle.Wish
	plan     lifecycle.Plan
	counts   counts
	decision Decision
	rivals   []rival
	invalid  error // why no pod is built from the template
	images   imageFacts
	// newTemplate: the status that was written before is of another template.
	newTemplate bool
}

// conditions are those of one status in the making.
type conditions struct {
	list       []metav1.Condition
	generation int64
	now        time.Time
	look       time.Time // when one of them may turn although nothing else has changed
}

// set turns a condition on or off, and keeps the time of its last transition.
func (c *conditions) set(kind string, on bool, reason, message string) {
	value := metav1.ConditionFalse
	if on {
		value = metav1.ConditionTrue
	}
	c.put(kind, value, reason, message)
}

func (c *conditions) put(kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.list, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: message,
		ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now.Truncate(time.Second)),
	})
}

// clear turns a condition off, if it has ever been on.
func (c *conditions) clear(kind, reason, message string) {
	if meta.FindStatusCondition(c.list, kind) != nil {
		c.set(kind, false, reason, message)
	}
}

// clearLater is clear, once the condition has been on for a while.
func (c *conditions) clearLater(kind, reason, message string) {
	old := meta.FindStatusCondition(c.list, kind)
	// A turn that is yet to come was written by another clock, and is no reason to wait for it.
	if old != nil && old.Status == metav1.ConditionTrue && !old.LastTransitionTime.After(c.now) {
		if until := old.LastTransitionTime.Add(conditionHold); c.now.Before(until) {
			c.look = earlier(c.look, until)
			return
		}
	}
	c.clear(kind, reason, message)
}

// conditionsOf computes every condition of a pool.
func conditionsOf(pool *v1alpha1.RunnerPool, before []metav1.Condition, f facts, now time.Time) *conditions {
	c := &conditions{generation: pool.Generation, now: now}
	for i := range before {
		c.list = append(c.list, *before[i].DeepCopy())
	}
	c.available(f)
	c.progressing(f)
	c.draining(f)
	c.deletionProtected(pool)
	c.removalBlocked(f)
	c.saturated(pool, f)
	c.starved(f)
	c.refused(f)
	c.imagesPulled(pool, f)
	c.labelConflict(f)
	c.stuckTerminating(f)
	c.outdated(f)
	c.scalingActive(pool, f)
	return c
}

func (c *conditions) available(f facts) {
	const kind = v1alpha1.ConditionAvailable
	switch {
	case f.counts.of[lifecycle.StageIdle]+f.counts.of[lifecycle.StageBusy] > 0:
		c.set(kind, true, "RunnersAvailable", "runners are available")
	case f.wish.Desired == 0:
		c.set(kind, true, "NoneDesired", "no runners are desired")
	default:
		c.set(kind, false, "NoRunnerReady", "no runner is ready yet")
	}
}

func (c *conditions) progressing(f facts) {
	const kind = v1alpha1.ConditionProgressing
	of := f.counts.of
	present := of[lifecycle.StageStarting] + of[lifecycle.StageIdle] + of[lifecycle.StageBusy]
	switch {
	case f.invalid != nil:
		c.set(kind, false, reasonInvalidTemplate, firstLine(f.invalid))
	case f.wish.Terminating:
		c.set(kind, true, reasonDraining, "the pool is being deleted")
	case f.counts.create != "":
		c.set(kind, false, reasonCreateFailed, f.counts.create)
	case f.plan.Delayed > 0:
		c.set(kind, false, "RunnersFailing", "runners exit before they can take a job; new ones are created with a backoff")
	case f.counts.outdated > 0 && f.images.Missing() > 0:
		c.set(kind, true, "RollingOut", fmt.Sprintf("replacing idle runners after a template change, on nodes with the images: %d of %d", f.images.Present, f.images.Nodes))
	case f.counts.outdated > 0:
		c.set(kind, true, "RollingOut", "replacing idle runners after a template change")
	case present != f.wish.Desired || of[lifecycle.StageTerminating] > 0:
		c.set(kind, true, "Scaling", "creating or removing runners")
	default:
		c.set(kind, false, "UpToDate", "the pool matches its spec")
	}
}

func (c *conditions) draining(f facts) {
	if f.wish.Terminating {
		c.set(v1alpha1.ConditionDraining, true, "WaitingForRunners",
			fmt.Sprintf("the pool is being deleted and waits for %s to finish", many(f.counts.of[lifecycle.StageBusy], "busy runner")))
		return
	}
	meta.RemoveStatusCondition(&c.list, v1alpha1.ConditionDraining) // restored from a backup, with the status of then
}

// deletionProtected is written in advance: when the controller is gone, nothing else says on the object what it waits for (POOL-13).
func (c *conditions) deletionProtected(pool *v1alpha1.RunnerPool) {
	if !slices.Contains(pool.Finalizers, runnerpod.FinalizerPoolDrain) {
		meta.RemoveStatusCondition(&c.list, v1alpha1.ConditionDeletionProtected)
		return
	}
	c.set(v1alpha1.ConditionDeletionProtected, true, runnerpod.ReasonFinalizer, runnerpod.HeldMessage(runnerpod.FinalizerPoolDrain, pool.Namespace))
}

func (c *conditions) removalBlocked(f facts) {
	const kind = v1alpha1.ConditionRemovalBlocked
	if f.counts.unsure == 0 {
		c.clear(kind, "FenceAvailable", "the server responds")
		return
	}
	c.set(kind, true, reasonFenceUnknown, fmt.Sprintf("%s cannot be removed, because it is unknown whether a job is running: %s",
		many(f.counts.unsure, "runner"), f.counts.blocked))
}

// saturated: jobs wait, no runner is idle or about to be, and there may be no more of them.
func (c *conditions) saturated(pool *v1alpha1.RunnerPool, f facts) {
	const kind = v1alpha1.ConditionSaturated
	of, demand := f.counts.of, f.decision.Demand
	if demand == nil {
		c.clearLater(kind, "Unknown", "no recent data about queued jobs")
		return
	}
	present := of[lifecycle.StageStarting] + of[lifecycle.StageIdle] + of[lifecycle.StageBusy] + of[lifecycle.StageTerminating]
	most := poolspec.Most(pool)
	if f.wish.Terminating || of[lifecycle.StageIdle] > 0 || demand.Queued <= of[lifecycle.StageStarting] || present < most {
		c.clearLater(kind, "BelowCapacity", "Pool is no longer saturated")
		return
	}
	remedy := "bullpen pool scale " + pool.Name + " --replicas N"
	if poolspec.Autoscales(pool) {
		remedy = "bullpen pool set " + pool.Name + " --max-replicas N"
	}
	c.set(kind, true, "AtCapacity", fmt.Sprintf("At capacity: %s, %s queued. To run more at once: `%s`.",
		occupied(of[lifecycle.StageBusy], present, most), many(demand.Queued, "job"), remedy))
}

// occupied says how many of the runners that a pool may have exist, and how many of them are busy.
func occupied(busy, present, most int) string {
	if busy == present {
		return fmt.Sprintf("%d of %d runners busy", busy, most)
	}
	return fmt.Sprintf("%d of %d runners exist (%d busy)", present, most, busy)
}

// starved: there should be more runners, and they cannot start.
func (c *conditions) starved(f facts) {
	const kind = v1alpha1.ConditionStarved
	switch {
	case f.wish.Terminating:
		c.clearLater(kind, "NoneDesired", "no runners are desired")
	case f.counts.unplaced > 0:
		c.set(kind, true, string(lifecycle.ReasonUnschedulable),
			fmt.Sprintf("%s cannot be scheduled: %s", many(f.counts.unplaced, "runner"), f.counts.schedulerSays))
	case f.plan.Refused > 0:
		message := fmt.Sprintf("%s cannot start now", many(f.plan.Refused, "more runner"))
		if f.counts.startsSay != "" {
			message += ": " + f.counts.startsSay
		}
		c.set(kind, true, "StartsLimited", message)
	case f.decision.Short != "":
		c.set(kind, true, "FleetFull", f.decision.Short)
	default:
		c.clearLater(kind, "RunnersCanStart", "all desired runners can start")
	}
}

// refused: GitHub does not do what some of the pool's jobs need (CLAIM-19, CLAIM-20).
func (c *conditions) refused(f facts) {
	const kind = v1alpha1.ConditionRefused
	switch demand := f.decision.Demand; {
	case demand == nil: // nothing recent is known
	case demand.Refused == "":
		c.clearLater(kind, "RunnersAccepted", "GitHub accepts the pool's runners")
	default:
		c.set(kind, true, "GitHubRefuses", demand.Refused)
	}
}

// imagesPulled: on how many nodes the images are that the template needs.
func (c *conditions) imagesPulled(pool *v1alpha1.RunnerPool, f facts) {
	const kind = v1alpha1.ConditionImagesPulled
	on := fmt.Sprintf("the images are on %d of %s", f.images.Present, many(f.images.Nodes, "node"))
	switch {
	case !f.images.Wanted:
		meta.RemoveStatusCondition(&c.list, kind)
	case f.images.failure != "":
		c.set(kind, false, v1alpha1.ReasonPullFailed, on+": "+f.images.failure)
	case f.images.Failed > 0:
		where := f.images.FailedNode
		if more := f.images.Failed - 1; more > 0 {
			where += fmt.Sprintf(" and %d more", more)
		}
		c.set(kind, false, v1alpha1.ReasonPullFailed, fmt.Sprintf("%s; failed on %s: %s", on, where, f.images.Problem))
	case f.images.Missing() > 0:
		c.set(kind, false, "Pulling", on+"; see DaemonSet "+runnerpod.PrepullName(pool.Name))
	case f.images.Nodes == 0:
		c.set(kind, true, "NoNodes", "no node matches the pool's template")
	default:
		c.set(kind, true, "Pulled", on)
	}
}

// labelConflict: neither pool is given the jobs that both could have (CLAIM-12).
func (c *conditions) labelConflict(f facts) {
	const kind = v1alpha1.ConditionLabelConflict
	if len(f.rivals) == 0 {
		c.clear(kind, "NoConflict", "no other pool has this label")
		return
	}
	clauses := []string{}
	for _, r := range f.rivals {
		if len(clauses) == namesInEvent {
			clauses = append(clauses, fmt.Sprintf("and %d more", len(f.rivals)-namesInEvent))
			break
		}
		clauses = append(clauses, fmt.Sprintf("pool %s also has label %s", r.pool, r.label))
	}
	c.set(kind, true, "SameLabel", strings.Join(clauses, ", ")+
		". Jobs with this label stay queued. Change the label of one of the pools, or delete one.")
}

func (c *conditions) stuckTerminating(f facts) {
	const kind = v1alpha1.ConditionStuckTerminating
	if f.counts.stuck == 0 {
		c.clear(kind, "PodsDeleted", "all deleted pods are gone")
		return
	}
	names := make([]string, len(f.counts.stuckFew))
	for i, pod := range f.counts.stuckFew {
		names[i] = pod.String()
	}
	if more := f.counts.stuck - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	c.set(kind, true, "PodsNotDeleted", fmt.Sprintf("%s not deleted in time: %s",
		many(f.counts.stuck, "pod"), strings.Join(names, ", "))) // POOL-10
}

func (c *conditions) scalingActive(pool *v1alpha1.RunnerPool, f facts) {
	const kind = v1alpha1.ConditionScalingActive
	old := meta.FindStatusCondition(c.list, kind)
	undecided := func() {
		c.put(kind, metav1.ConditionUnknown, "AwaitingData", fmt.Sprintf("the pool size stays at %d until the autoscaler has data", f.wish.Desired))
	}
	due := f.decision.BlindSince.Add(blindHold)
	switch {
	case !poolspec.Autoscales(pool) || f.wish.Terminating:
		meta.RemoveStatusCondition(&c.list, kind)
	case f.decision.Blind != "" && c.now.Before(due) && (old == nil || old.Status != metav1.ConditionFalse):
		if c.look = earlier(c.look, due); old == nil {
			undecided()
		}
	case f.decision.Blind != "":
		c.set(kind, false, "NoData", fmt.Sprintf("the pool size stays at %d: %s", f.wish.Desired, f.decision.Blind))
	case f.decision.Decided:
		c.set(kind, true, "DemandKnown", "the pool size follows the job queue")
	case old == nil: // after a restart, what was so before stands
		undecided()
	}
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
