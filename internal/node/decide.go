package node

import "slices"

// presence is what is known of the pod object.
type presence int

const (
	present presence = iota
	// missing: the cache no longer has it. That is no proof: nothing is stopped for it.
	missing
	// gone: the API server itself says that no pod of this UID exists.
	gone
)

// stage is how far a container has come.
type stage int

const (
	unstarted stage = iota
	running
	exited
)

type containerView struct {
	Name     string
	Init     bool
	Sidecar  bool // an init container that runs beside the others until they have exited
	Up       bool // runs, and its startup probe has succeeded
	Stage    stage
	OK       bool // exited with code 0
	Starting bool // an operation that starts it is under way
	TermSent bool
	KillSent bool
	Spared   bool // a preStop hook, or TERM after one, is not over yet: no KILL
}

// view is the input of decide.
type view struct {
	Presence      presence
	Deleting      bool // has a deletionTimestamp
	Terminal      bool // the API server shows Succeeded or Failed, or the pod's deadline is over
	HasFinalizer  bool
	StatusCurrent bool // the API server shows what we would write

	Adopted    bool // the sandbox has been asked what it has on record
	Refused    bool // the pod asks for what cannot be done here
	Preparing  bool
	Prepared   bool
	Removed    bool // the sandbox has confirmed that nothing is left
	KillDue    bool // the grace period is over
	Containers []containerView
}

// verb is one kind of step.
type verb string

const (
	doAdopt         verb = "adopt"
	doConfirmGone   verb = "confirm-gone"
	doWrite         verb = "write" // status, and our finalizer put on
	doPrepare       verb = "prepare"
	doStart         verb = "start"
	doCancelStarts  verb = "cancel-starts"
	doTerminate     verb = "terminate"
	doKill          verb = "kill"
	doRemove        verb = "remove"
	doDropFinalizer verb = "drop-finalizer"
	doDelete        verb = "delete"
	doFinish        verb = "finish"
)

type action struct {
	Verb      verb
	Container string
}

// decide says what to do next. It is pure; steps already under way or waiting for their next try are simply not
// repeated by the caller.
func decide(v view) []action {
	switch {
	case !v.Adopted:
		return []action{{Verb: doAdopt}}
	case v.Presence == missing && v.Removed:
		return []action{{Verb: doFinish}}
	case v.Presence == missing:
		return []action{{Verb: doConfirmGone}}
	case v.Presence == gone:
		return decideGone(v)
	// NODE-1: deletion comes before terminal phase. The other way round every pod that is both stays for ever.
	case v.Deleting:
		return decideDeleting(v)
	case v.Terminal, sidecarsAlone(v.Containers):
		return append(stop(v), report(v)...)
	}
	return decideRunning(v)
}

// decideGone ends what runs for a pod that does not exist.
func decideGone(v view) []action {
	if steps, stopped := stopFirst(v); !stopped {
		return steps
	}
	if !v.Removed {
		return []action{{Verb: doRemove}}
	}
	return []action{{Verb: doFinish}}
}

// decideDeleting has a strict order: stop the containers, report how they ended, remove the sandbox, release the object.
func decideDeleting(v view) []action {
	if steps, stopped := stopFirst(v); !stopped {
		return append(steps, report(v)...)
	}
	if !v.StatusCurrent {
		return report(v)
	}
	// NODE-2: the finalizer and the object stay until the sandbox is gone.
	if !v.Removed {
		return []action{{Verb: doRemove}}
	}
	if v.HasFinalizer {
		return []action{{Verb: doDropFinalizer}}
	}
	return []action{{Verb: doDelete}}
}

func decideRunning(v view) []action {
	steps := report(v)
	switch {
	// Nothing starts before our finalizer holds the object.
	case !v.HasFinalizer:
		return []action{{Verb: doWrite}}
	case v.Refused:
		return steps
	case !v.Prepared:
		return append(steps, action{Verb: doPrepare})
	}
	for _, c := range v.Containers {
		if !c.Init {
			continue
		}
		switch {
		case c.Stage == unstarted:
			return append(steps, action{doStart, c.Name})
		case c.Sidecar && c.Up, !c.Sidecar && c.Stage == exited && c.OK:
		default:
			return steps
		}
	}
	for _, c := range v.Containers {
		if !c.Init && c.Stage == unstarted {
			steps = append(steps, action{doStart, c.Name})
		}
	}
	return steps
}

func report(v view) []action {
	if v.StatusCurrent {
		return nil
	}
	return []action{{Verb: doWrite}}
}

// stopFirst returns the steps that stop all containers, and whether they have stopped.
func stopFirst(v view) ([]action, bool) {
	active := v.Preparing || slices.ContainsFunc(v.Containers, func(c containerView) bool { return c.Starting || c.Stage == running })
	return stop(v), !active
}

func stop(v view) []action {
	var steps []action
	if v.Preparing || slices.ContainsFunc(v.Containers, func(c containerView) bool { return c.Starting }) {
		steps = append(steps, action{Verb: doCancelStarts})
	}
	for i, c := range v.Containers {
		switch {
		case c.Stage != running:
		case v.KillDue && c.Spared:
		case v.KillDue && !c.KillSent:
			steps = append(steps, action{doKill, c.Name})
		case !v.KillDue && !c.TermSent && !(c.Sidecar && anyRunning(v.Containers[i+1:])):
			steps = append(steps, action{doTerminate, c.Name})
		}
	}
	return steps
}

func anyRunning(containers []containerView) bool {
	return slices.ContainsFunc(containers, func(c containerView) bool { return c.Stage == running })
}

// sidecarsAlone reports whether sidecars run, and all other containers have exited: the pod is over, and sidecars are stopped, the last one first.
func sidecarsAlone(containers []containerView) bool {
	return anyRunning(containers) && !slices.ContainsFunc(containers, func(c containerView) bool { return !c.Sidecar && c.Stage != exited })
}
