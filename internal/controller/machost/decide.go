package machost

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is what a host is doing, or what is in its way. It is the reason of the condition Ready, and labels a metric.
type State string

// The states.
const (
	StateReady           State = "Ready"
	StateApplying        State = "Applying"
	StateQueued          State = "Queued" // as many others as may be are being worked on
	StateBackingOff      State = "BackingOff"
	StateDraining        State = "Draining"
	StateWaitingForTurn  State = "WaitingForTurn"
	StateNodeMissing     State = "NodeMissing"
	StateNodeNotReady    State = "NodeNotReady"
	StatePaused          State = "Paused"
	StateUnreachable     State = "Unreachable"
	StateHostKeyChanged  State = "HostKeyChanged"
	StateWrongPassword   State = "WrongPassword"
	StateFailed          State = "Failed"
	StateInvalid         State = "InvalidConfiguration"
	StateSecretMissing   State = "SecretMissing"
	StateSecretForbidden State = "SecretForbidden"
	StateConflict        State = "Conflict"
)

// States are all of them, for metrics.
func States() []State {
	return []State{
		StateReady, StateApplying, StateQueued, StateBackingOff, StateDraining, StateWaitingForTurn, StateNodeMissing, StateNodeNotReady, StatePaused,
		StateUnreachable, StateHostKeyChanged, StateWrongPassword, StateFailed, StateInvalid, StateSecretMissing, StateSecretForbidden, StateConflict,
	}
}

// problem is why there can be no attempt, whatever the Mac's state.
type problem struct {
	State State
	Why   string // a sentence with what to do
}

// nodeView is what matters of a Mac's Node.
type nodeView struct {
	Wanted        bool // the configuration has a node agent
	Exists        bool
	Ready         bool
	Unschedulable bool
	Mine          bool      // this MacHost has cordoned it, by its mark
	CordonedAt    time.Time // by the mark
	Runners       int       // bound to it and not ended
}

// inService reports whether a runner may start on the Mac at any time: then not even a Mac on which none runs may be disrupted.
func (n nodeView) inService() bool { return n.Exists && n.Ready && (!n.Unschedulable || n.Runners > 0) }

func (n nodeView) well() bool { return !n.Wanted || n.Exists && n.Ready }

// observed is the input of decide, beside the time.
type observed struct {
	memory
	Node nodeView
	node *corev1.Node // the source of the view; not an input of decide
	// FormerNode is the Node of another name that is still in service on the Mac, if any.
	FormerNode string
	// Problem rules attempts out. Without one, WantedNow is the hash of all that is wanted.
	Problem   *problem
	WantedNow string
	// Account and Identity are the hashes of what must change after a wrong password, and after a changed host key.
	Account, Identity string
	Paused            bool
	// Working reports that an attempt is running in this process.
	Working bool
	// Room reports that another attempt may begin.
	Room bool
	// Turn is the other host of the pool that is being drained, if any.
	Turn string
	// LastError is why the last attempt failed.
	LastError string
}

// riskedAccount is whose password an attempt may have refused; empty when there is none, or when the Mac has once taken it.
func (o observed) riskedAccount(w wanted) string {
	if o.Applied != "" || w.Request.Secrets.Password.Empty() {
		return ""
	}
	return o.Account
}

// deed is what is done to a host.
type deed string

const (
	nothing  deed = ""
	attempt  deed = "attempt"
	cordon   deed = "cordon"
	uncordon deed = "uncordon"
)

// action is the result of decide.
type action struct {
	Do    deed
	State State
	Why   string
	// Again is when to reconcile again without a change.
	Again time.Duration
	// Due is why the Mac is not as desired; empty when it is.
	Due string
	// Overdue reports that a drain needs an administrator's attention.
	Overdue bool
	// keep leaves the Node cordoned, if this host has cordoned it.
	keep bool
}

// decide returns the next action. It is a pure function.
//
// A Node that this host has cordoned is uncordoned as soon as no attempt will follow: a Mac that is not in its desired state serves as it
// did before, for a failed step leaves it no worse, and the next one of its pool has its turn.
func decide(o observed, now time.Time) action {
	a := next(o, now)
	if a.Do == nothing && o.Node.Exists && o.Node.Mine && !a.keep {
		a.Do = uncordon
	}
	return a
}

func next(o observed, now time.Time) action {
	due := o.due(now)
	switch {
	case o.Working:
		return action{State: StateApplying, Why: "the steps are being checked and applied", Again: lookAgain, Due: due, keep: true}
	case o.Paused:
		return action{State: StatePaused, Why: "spec.paused is true, or the MacHost is being deleted: the Mac is not changed", Again: lookAgain, Due: due}
	case o.Problem != nil:
		return action{State: o.Problem.State, Why: o.Problem.Why, Again: lookAgain, Due: due}
	case o.Outcome == OutcomeWrongPassword && o.BlockedBy == o.Account:
		return action{State: StateWrongPassword, Again: lookAgain, Due: due,
			Why: "no further attempt until the password's Secret, the address or the user changes, because macOS may lock the account (any change of the Secret counts, even of an annotation): " + o.LastError}
	case o.Outcome == OutcomeRunning && o.Account != "" && o.BlockedBy == twice(o.Account):
		return action{State: StateWrongPassword, Again: lookAgain, Due: due,
			Why: "two attempts were interrupted with their controllers, and each may have failed to log in: no further attempt until the password's Secret, the address or the user changes, because macOS may lock the account (any change of the Secret counts, even of an annotation)"}
	case o.Outcome == OutcomeHostKeyChanged && o.BlockedBy == o.Identity:
		return action{State: StateHostKeyChanged, Again: lookAgain, Due: due,
			Why: "no further attempt until spec.hostKey or the address changes. If the Mac was reinstalled, set its new fingerprint there: " + o.LastError}
	case due == "":
		return o.wellOrWaiting(now)
	}
	if o.Wanted == o.WantedNow {
		if a, wait := o.waiting(now, due); wait {
			return a
		}
	}
	if !o.Room {
		return action{State: StateQueued, Why: "other Macs are being configured: " + due, Again: drainLook, Due: due, keep: true}
	}
	return action{Do: attempt, State: StateApplying, Why: due, Again: lookAgain, Due: due, keep: true}
}

// due says why an attempt is needed; empty when none is. The result of a failed attempt is unknown, so the hash that was applied before it
// is no reason to leave the Mac alone. Nor is a success of long ago: an update of macOS writes its own files, and programs turn pf off.
func (o observed) due(now time.Time) string {
	switch {
	case o.Applied == "":
		return "the Mac has not been prepared yet"
	case o.Problem == nil && o.Applied != o.WantedNow:
		return "the configuration, a Secret or the bullpen binary has changed since it was applied"
	case o.Problem == nil && (o.Wanted != o.WantedNow || o.Outcome != OutcomeSucceeded):
		return "the last attempt did not succeed"
	case o.nodeOverdue(now):
		return o.nodeTrouble()
	case o.Problem == nil && now.Sub(o.AppliedTime) >= checkEvery:
		return "the Mac was last checked more than a day ago"
	default:
		return ""
	}
}

func (o observed) nodeTrouble() string {
	if o.Node.Exists {
		return "the Mac's Node is not ready"
	}
	return "the Mac's Node does not exist"
}

func (o observed) nodeOverdue(now time.Time) bool {
	return !o.Missing.IsZero() && !o.Node.well() && now.Sub(o.Missing) >= o.grace()
}

func (o observed) grace() time.Duration {
	if o.Node.Exists {
		return silentGrace
	}
	return nodeGrace
}

// wellOrWaiting is for a host of which nothing is wanted: it is ready, or its Node has some time left to become so.
func (o observed) wellOrWaiting(now time.Time) action {
	if o.Node.well() {
		return action{State: StateReady, Why: "the Mac matches its configuration", Again: lookAgain}
	}
	state := StateNodeMissing
	if o.Node.Exists {
		state = StateNodeNotReady
	}
	left := lookAgain
	if !o.Missing.IsZero() {
		left = min(left, max(o.Missing.Add(o.grace()).Sub(now), time.Second))
	}
	return action{State: state, Why: fmt.Sprintf("every step is up to date, but %s; the steps are checked again after %s", o.nodeTrouble(), o.grace()), Again: left}
}

// cause is the last error without its full stop, for the middle of a message.
func (o observed) cause() string { return strings.TrimRight(o.LastError, ". ") }

// waiting says what an attempt for what is wanted waits for, and whether it does.
func (o observed) waiting(now time.Time, due string) (action, bool) {
	left := max(o.Next.Sub(now), 0)
	again := min(max(left, time.Second), lookAgain)
	switch {
	case o.exhausted() && left > 0:
		return action{State: StateFailed, Again: again, Due: due,
			Why: fmt.Sprintf("%d attempts failed: %[3]s. Next attempt at %[2]s, or when the spec, the configuration, a Secret or the annotation bullpen.dev/reapply changes.",
				o.Attempts, o.Next.UTC().Format(time.RFC3339), o.cause())}, true
	case o.Outcome == OutcomeUnreachable && left > 0:
		return action{State: StateUnreachable, Again: again, Due: due, keep: o.Unreachable < unreachableHold,
			Why: fmt.Sprintf("%d attempts in a row could not reach the Mac: %[3]s. Next attempt at %[2]s.", o.Unreachable, o.Next.UTC().Format(time.RFC3339), o.cause())}, true
	case o.Outcome == OutcomeDeferred:
		return o.draining(now, left, due)
	case left > 0:
		return action{State: StateBackingOff, Again: again, Due: due, keep: true,
			Why: fmt.Sprintf("attempt %d failed: %[3]s. Next attempt at %[2]s.", o.Attempts, o.Next.UTC().Format(time.RFC3339), o.cause())}, true
	}
	return action{}, false
}

// draining brings a Node to where no machine runs: it is cordoned, by which idle runners leave, and busy ones end by themselves.
// Nothing here ends one.
func (o observed) draining(now time.Time, left time.Duration, due string) (action, bool) {
	n := o.Node
	switch {
	case o.FormerNode != "": // not cordoned: it belongs to no MacHost
		return action{State: StateDraining, Again: drainLook, Due: due, keep: true,
			Why: fmt.Sprintf("the Mac is still the Node %[1]s: a disruptive change waits until that is cordoned and has no runners (kubectl cordon %[1]s)", o.FormerNode)}, true
	case !n.Exists:
		if left == 0 {
			return action{}, false
		}
		return action{State: StateDraining, Why: "virtual machines run on the Mac, and it has no Node to cordon: a disruptive change waits for them to stop", Again: min(left, lookAgain), Due: due, keep: true}, true
	case !n.Unschedulable && o.Turn != "":
		return action{State: StateWaitingForTurn, Why: "a disruptive change waits until " + o.Turn + " of the same pool is done", Again: drainLook, Due: due, keep: true}, true
	case !n.Unschedulable, n.Mine && n.CordonedAt.After(now): // the clock was set back: the time is written again
		return action{Do: cordon, State: StateDraining, Why: "a disruptive change waits for running virtual machines to stop", Again: drainLook, Due: due, keep: true}, true
	case n.Runners > 0:
		a := action{State: StateDraining, Again: drainLook, Due: due, keep: true,
			Why: fmt.Sprintf("the Node is cordoned, and a disruptive change waits for %d runners to finish", n.Runners)}
		if n.Mine && !n.CordonedAt.IsZero() && now.Sub(n.CordonedAt) >= drainPatience {
			a.Overdue = true
			a.Why += fmt.Sprintf(", for more than %s. They must be stopped manually.", drainPatience)
		}
		return a, true
	case n.Mine && now.Sub(n.CordonedAt) < settle:
		return action{State: StateDraining, Why: "the Node is cordoned and empty; verifying that it stays empty", Again: settle, Due: due, keep: true}, true
	case left > 0 && !(n.Mine && o.Next.Sub(n.CordonedAt) < busyRetry+settle): // the last attempt was before the Node was cordoned
		return action{State: StateDraining, Why: "the Node is cordoned and has no runners, but virtual machines still run on the Mac: stop those that Bullpen did not start", Again: min(max(left, time.Second), drainLook), Due: due, keep: true,
			Overdue: n.Mine && !n.CordonedAt.IsZero() && now.Sub(n.CordonedAt) >= drainPatience}, true
	}
	return action{}, false
}
