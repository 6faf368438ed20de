package machost

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

func recall(s *v1alpha1.MacHostStatus) memory {
	return memory{
		Applied: s.AppliedHash, AppliedTime: timeOf(s.AppliedTime), Wanted: s.DesiredHash, Attempts: int(s.Attempts), Unreachable: int(s.Unreachable),
		Next: timeOf(s.NextAttempt), Outcome: Outcome(s.Outcome), BlockedBy: s.BlockedBy, Missing: timeOf(s.NodeMissingSince),
	}
}

func remember(s *v1alpha1.MacHostStatus, m memory) {
	s.AppliedHash, s.AppliedTime, s.DesiredHash = m.Applied, orNil(m.AppliedTime), m.Wanted
	s.Attempts, s.Unreachable = int32(m.Attempts), int32(m.Unreachable) //nolint:gosec // both are small: the one has a cap, the other grows every few minutes
	s.NextAttempt, s.Outcome, s.BlockedBy, s.NodeMissingSince = orNil(m.Next), string(m.Outcome), m.BlockedBy, orNil(m.Missing)
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// orNil is a time as it is stored: in whole seconds, and never earlier than it is.
func orNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		t = whole.Add(time.Second)
	}
	return &metav1.Time{Time: t}
}

// conclude writes what came of an attempt into the status. The host key that was once trusted is replaced by none but the one that a
// person has written into the spec. The first is not trusted unless the login succeeded: another machine may have the address.
func conclude(host *v1alpha1.MacHost, result *Result, now time.Time) {
	s, generation := &host.Status, host.Generation
	reached := !slices.Contains([]Outcome{OutcomeUnreachable, OutcomeLoginRefused, OutcomeHostKeyChanged}, result.Outcome)
	if key := printable(result.HostKey, 100); key != "" && (key == host.Spec.HostKey || s.HostKey == "" && host.Spec.HostKey == "" && reached) {
		s.HostKey = key
	}
	s.LastError = ""
	if result.Err != nil && result.Outcome != OutcomeDeferred {
		s.LastError = result.Err.Error()
	}
	set := setter(s, generation, now)
	if reached {
		set(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Reached", "the last SSH connection succeeded")
	} else {
		set(v1alpha1.ConditionReachable, metav1.ConditionFalse, string(result.Outcome), s.LastError)
	}
	switch {
	case result.Outcome == OutcomeSucceeded:
		set(v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, "Applied", "all steps are applied")
	case meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionBootstrapped) == nil:
		set(v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, "NotApplied", "not all steps are applied yet")
	}
}

func setter(s *v1alpha1.MacHostStatus, generation int64, now time.Time) func(kind string, status metav1.ConditionStatus, reason, message string) {
	return func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
			LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
		})
	}
}

// phases are the conditions of each phase.
var phases = map[machost.Phase]struct {
	status  metav1.ConditionStatus
	message string
}{
	machost.PhaseApplying:  {metav1.ConditionUnknown, "being applied"},
	machost.PhaseConfirm:   {metav1.ConditionUnknown, "waiting for confirmation that the Mac is still reachable"},
	machost.PhaseUnchanged: {metav1.ConditionTrue, "up to date"},
	machost.PhaseApplied:   {metav1.ConditionTrue, "changed and up to date"},
	machost.PhaseDone:      {metav1.ConditionTrue, "done"},
	machost.PhasePlanned:   {metav1.ConditionFalse, "differs from the configuration"},
	machost.PhaseDeferred:  {metav1.ConditionFalse, "waiting until no virtual machine runs"},
	machost.PhaseFailed:    {metav1.ConditionFalse, "failed"},
}

// showSteps writes a condition for each step. After an attempt that went well, those that it has not named are of an older version and go.
func showSteps(s *v1alpha1.MacHostStatus, steps []stepView, all bool, generation int64, now time.Time) {
	set := setter(s, generation, now)
	named := map[string]bool{}
	for _, step := range steps {
		phase, known := phases[step.Phase]
		if !known {
			continue
		}
		kind := v1alpha1.ConditionStepPrefix + step.Name
		named[kind] = true
		message := phase.message
		if step.Message != "" {
			message = step.Message
		}
		set(kind, phase.status, string(step.Phase), message)
	}
	kept := 0
	for _, c := range s.Conditions {
		if strings.HasPrefix(c.Type, v1alpha1.ConditionStepPrefix) {
			kept++
		}
	}
	if !all && kept <= mostSteps {
		return // a Mac that names others in each attempt must not fill the status
	}
	for _, c := range append([]metav1.Condition(nil), s.Conditions...) {
		if strings.HasPrefix(c.Type, v1alpha1.ConditionStepPrefix) && !named[c.Type] {
			meta.RemoveStatusCondition(&s.Conditions, c.Type)
		}
	}
}

// show writes what has been decided.
func show(s *v1alpha1.MacHostStatus, a action, node nodeView, generation int64, now time.Time) {
	set := setter(s, generation, now)
	ready := metav1.ConditionFalse
	if a.State == StateReady {
		ready = metav1.ConditionTrue
	}
	set(v1alpha1.ConditionReady, ready, string(a.State), printable(a.Why, 2*longestText))
	if a.State != StateDraining && a.State != StateWaitingForTurn && (!node.Mine || a.Do == uncordon) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionDrained)
		return
	}
	switch {
	case a.Overdue:
		set(v1alpha1.ConditionDrained, metav1.ConditionFalse, reasonOverdue, a.Why)
	case !node.Exists || !node.Unschedulable:
		set(v1alpha1.ConditionDrained, metav1.ConditionFalse, "NotCordoned", a.Why)
	case node.Runners > 0:
		set(v1alpha1.ConditionDrained, metav1.ConditionFalse, "RunnersBusy", fmt.Sprintf("runners on the cordoned Node: %d", node.Runners))
	default:
		set(v1alpha1.ConditionDrained, metav1.ConditionTrue, "Empty", "the Node is cordoned, and has no runners")
	}
}

const reasonOverdue = "Overdue"
