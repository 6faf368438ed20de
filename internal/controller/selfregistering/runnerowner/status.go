package runnerowner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// statusEvery is how often a status is written at most.
const statusEvery = time.Second

// statusWriter is what is known of the last write.
type statusWriter struct {
	written *Status
	at      time.Time
}

// facts is what a status is computed from.
type facts struct {
	wish    lifecycle.Wish
	plan    lifecycle.Plan
	held    bool // by RUN-4
	of      map[lifecycle.Stage]int
	updated int
	invalid error

	unsure, waiting         int // runners to be removed whose state is unknown; and those that wait for something before they have a pod
	unsureSays, waitingSays string
	unplaced                int // runners whose pods no node takes
	unplacedSays            string
	createSays, startSays   string
	stuck                   []string // what should be gone and is still there, and what keeps it, sorted (POOL-10)
	outdated                bool     // GitHub has refused a runner of the present template because its version is too old
	completeAt              time.Time
	conditions              []metav1.Condition // as they were written last
}

func (s *ownerState) facts(o *Owner, w work, now time.Time) facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := facts{
		wish: w.wish, plan: w.plan, held: w.held, of: map[lifecycle.Stage]int{}, invalid: o.Invalid, createSays: s.createSays,
		unsure: len(s.unsure), waiting: len(s.waiting), completeAt: s.completeAt, outdated: s.outdated != "",
		updated: s.runners.OfTemplate(o.TemplateHash),
	}
	f.conditions = o.Conditions
	if s.status.written != nil {
		f.conditions = s.status.written.Conditions
	}
	if now.Before(s.holdUntil) {
		f.startSays = s.startSays
	}
	for _, stage := range lifecycle.Stages() {
		f.of[stage] = s.runners.Count(stage)
	}
	f.unsureSays, f.waitingSays = oneOf(s.unsure), oneOf(s.waiting)
	f.unplaced, f.unplacedSays = len(s.unplaced), oneOf(s.unplaced)
	for name, due := range s.leaving {
		if r, has := s.runners.Get(name); has && !now.Before(due) {
			f.stuck = append(f.stuck, s.members[name].stuck(r).String())
		}
	}
	slices.Sort(f.stuck)
	return f
}

// oneOf is the sentence of the first by name, so that it stays the same as long as that does.
func oneOf(sentences map[string]string) string {
	first := ""
	for name := range sentences {
		if first == "" || name < first {
			first = name
		}
	}
	return sentences[first]
}

// statusOf computes an owner's status. The conditions keep the times of those before.
func statusOf(o *Owner, f facts, now time.Time) Status {
	of := f.of
	present := of[lifecycle.StageStarting] + of[lifecycle.StageIdle] + of[lifecycle.StageBusy] + of[lifecycle.StageTerminating]
	return Status{
		Counts: v1alpha1.RunnerCounts{
			Replicas: int32(present + of[lifecycle.StageLost]), Starting: int32(of[lifecycle.StageStarting]), Idle: int32(of[lifecycle.StageIdle]),
			Busy: int32(of[lifecycle.StageBusy] + of[lifecycle.StageLost]), Terminating: int32(of[lifecycle.StageTerminating]), Finished: int32(of[lifecycle.StageFinished]),
		},
		Generation: o.Object.GetGeneration(), TemplateHash: f.wish.TemplateHash, Desired: f.wish.Desired, Updated: f.updated,
		CompleteAt: metav1.NewTime(f.completeAt.Truncate(time.Second)), Conditions: conditionsOf(o, f, now),
	}
}

// conditions are those of one status in the making.
type conditions struct {
	list       []metav1.Condition
	generation int64
	now        time.Time
}

func (c *conditions) set(kind string, on bool, reason, message string) {
	value := metav1.ConditionFalse
	if on {
		value = metav1.ConditionTrue
	}
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

func conditionsOf(o *Owner, f facts, now time.Time) []metav1.Condition {
	c := &conditions{generation: o.Object.GetGeneration(), now: now}
	for i := range f.conditions {
		c.list = append(c.list, *f.conditions[i].DeepCopy())
	}
	if f.invalid != nil {
		c.set(v1alpha1.ConditionValid, false, "InvalidTemplate", firstLine(f.invalid))
	} else {
		c.set(v1alpha1.ConditionValid, true, "TemplateValid", "pods can be created from the template")
	}
	c.available(f)
	c.progressing(f)
	if o.Protected {
		c.set(v1alpha1.ConditionDeletionProtected, true, runnerpod.ReasonFinalizer, runnerpod.HeldMessage(runnerpod.FinalizerRegistration, o.Object.GetNamespace()))
	}
	o.Scaling.Show(&c.list, f.wish.Terminating, c.generation, now)
	if f.held {
		c.set(v1alpha1.ConditionRecreationDelayed, true, "JobsMayBeOver", fmt.Sprintf(
			"%s not recreated before %s unless more jobs are queued: the finished runners may have run the last jobs",
			many(f.plan.Delayed, "runner"), f.wish.HoldUntil.UTC().Format(time.RFC3339)))
	} else {
		c.clear(v1alpha1.ConditionRecreationDelayed, "NotDelayed", "no recreation is delayed")
	}
	if f.wish.Terminating {
		c.set(v1alpha1.ConditionDraining, true, "WaitingForRunners", fmt.Sprintf(
			"being deleted; waiting for %s to finish", many(f.of[lifecycle.StageBusy], "busy runner")))
	}
	if f.unsure > 0 {
		c.set(v1alpha1.ConditionRemovalBlocked, true, "FenceUnknown", fmt.Sprintf(
			"%s cannot be removed, because it is unknown whether a job is running: %s", many(f.unsure, "runner"), f.unsureSays))
	} else {
		c.clear(v1alpha1.ConditionRemovalBlocked, "FenceAvailable", "GitHub responds")
	}
	if len(f.stuck) > 0 {
		c.set(v1alpha1.ConditionStuckTerminating, true, "PodsNotDeleted", fmt.Sprintf("%s not deleted in time: %s", many(len(f.stuck), "runner"), listed(f.stuck)))
	} else {
		c.clear(v1alpha1.ConditionStuckTerminating, "PodsDeleted", "all deleted runners are gone")
	}
	if f.outdated {
		c.set(v1alpha1.ConditionOutdated, true, "VersionRefused", "GitHub rejects runners of this version as too old. Set a newer image in the template.")
	} else {
		c.clear(v1alpha1.ConditionOutdated, "VersionAccepted", "GitHub accepts the runner version of this template")
	}
	return c.list
}

func (c *conditions) available(f facts) {
	const kind = v1alpha1.ConditionAvailable
	switch {
	case f.of[lifecycle.StageIdle]+f.of[lifecycle.StageBusy] > 0:
		c.set(kind, true, "RunnersAvailable", "runners are available")
	case f.wish.Desired == 0:
		c.set(kind, true, "NoneDesired", "no runners are desired")
	default:
		c.set(kind, false, "NoRunnerReady", "no runner is ready yet")
	}
}

func (c *conditions) progressing(f facts) {
	const kind = v1alpha1.ConditionProgressing
	present := f.of[lifecycle.StageStarting] + f.of[lifecycle.StageIdle] + f.of[lifecycle.StageBusy]
	switch {
	case f.wish.Terminating:
		c.set(kind, true, "Draining", "being deleted")
	case f.invalid != nil:
		c.set(kind, false, "InvalidTemplate", firstLine(f.invalid))
	case f.createSays != "":
		c.set(kind, false, "CreateFailed", f.createSays)
	case f.waiting > 0:
		c.set(kind, false, "CannotRegister", fmt.Sprintf("%s without a pod: %s", many(f.waiting, "runner"), f.waitingSays))
	case f.unplaced > 0:
		c.set(kind, false, "Unschedulable", fmt.Sprintf("%s without a node: %s", many(f.unplaced, "runner"), f.unplacedSays))
	case f.plan.Refused > 0:
		c.set(kind, false, "TooManyStatefulSets", fmt.Sprintf("too many StatefulSets exist: creation of %s is delayed", many(f.plan.Refused, "runner")))
	case f.held:
		c.set(kind, false, "RecreationDelayed", "finished runners are not recreated yet")
	case f.plan.Delayed > 0:
		c.set(kind, false, "RunnersFailing", "runners exit before they can take a job; new ones are created with a backoff: "+f.startSays)
	case f.updated < present:
		c.set(kind, true, "RollingOut", "replacing runners that are not busy after a template change")
	case present != f.wish.Desired || f.of[lifecycle.StageTerminating] > 0:
		c.set(kind, true, "Scaling", "creating or removing runners")
	default:
		c.set(kind, false, "UpToDate", "the runners match the spec")
	}
}

// statusDue says how long a status must wait to be written; negative: it need not be.
func (s *ownerState) statusDue(status Status, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.status.written != nil && equality.Semantic.DeepEqual(*s.status.written, status):
		return -1
	case s.status.at.IsZero():
		return 0
	default:
		return max(0, statusEvery-now.Sub(s.status.at))
	}
}

func (s *ownerState) statusWritten(status Status, now time.Time) (before []metav1.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.owner.Conditions
	if s.status.written != nil {
		before = s.status.written.Conditions
	}
	s.status.written, s.status.at = &status, now
	return before
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// namesListed is how many names a sentence has: it is read by a person.
const namesListed = 5

func listed(names []string) string {
	if len(names) <= namesListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesListed], ", "), len(names)-namesListed)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
