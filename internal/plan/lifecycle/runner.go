package lifecycle

import "time"

// Stage is where a runner is in its life, as far as its owner can observe.
type Stage int

// The stages. Observers derive them from what they see; in doubt a runner is StageBusy.
const (
	// StageStarting: it exists and cannot take work yet.
	StageStarting Stage = iota + 1
	// StageIdle: it can take work now.
	StageIdle
	// StageBusy: it shows any sign of work (EXCL-4).
	StageBusy
	// StageTerminating: our removal is under way; Runner.Removal says how far.
	StageTerminating
	// StageFinished: it has ended, or its registration is spent.
	StageFinished
	// StageLost: its node or backing object is authoritatively gone, or the server reports that its work is over
	// although its pod shows work. Its account may still be charged, so the fence is asked as for any other: with the
	// question whether its registration is gone (RunnerRef.Lost).
	StageLost
)

// String names the stage as it is shown in status and metrics.
func (s Stage) String() string {
	switch s {
	case StageStarting:
		return "starting"
	case StageIdle:
		return "idle"
	case StageBusy:
		return "busy"
	case StageTerminating:
		return "terminating"
	case StageFinished:
		return "finished"
	case StageLost:
		return "lost"
	default:
		return "unknown"
	}
}

// Stages lists every stage in the order of a runner's life.
func Stages() []Stage {
	return []Stage{StageStarting, StageIdle, StageBusy, StageTerminating, StageFinished, StageLost}
}

// Removal is how far our removal of a StageTerminating runner has come.
type Removal int

// The steps of a removal.
const (
	RemovalNone Removal = iota
	// RemovalAsked: the fence was asked and has not granted. This can be withdrawn.
	RemovalAsked
	// RemovalGranted: the fence has granted; nothing takes that back.
	RemovalGranted
	// RemovalDeleting: the deletion was accepted; the runner is not gone yet.
	RemovalDeleting
)

// Runner is one runner as the engine sees it. It is a value: nothing in it points into a cache.
type Runner struct {
	// Name is unique within the owner.
	Name string
	// UID is the identity that fences decide on. It is empty while the runner's creation has not been answered.
	UID string
	// TemplateHash tells which template it was made from.
	TemplateHash string
	Created      time.Time
	// Node is the name of the node that it was placed on; empty while it waits for one, or where there are none.
	Node  string
	Stage Stage
	// Since is when the clock of the stage began. For StageStarting it is the moment it was placed on a node, zero
	// while it waits for one. For StageIdle it is the moment it could take work; zero if that is unknown, and then it
	// is never idle for too long. For StageTerminating it is the moment its removal began.
	Since time.Time
	// Removal is how far the removal of a StageTerminating or a StageLost runner is. Of one that was asked about, Why is the
	// reason, and AskAt when the fence may be asked again. AskAt of a StageLost one holds whatever Removal is, so that one
	// which the fence calls busy is not asked about without a pause.
	Removal Removal
	Why     Reason
	AskAt   time.Time
	// Shown and ShownSince are the Stage and Since that a StageTerminating runner would have without the request. They say
	// whether the reason to ask still holds: one that has become idle has started after all.
	Shown      Stage
	ShownSince time.Time
	// Expected marks our own creation that the cache has not shown yet. It counts, and is never a victim: nothing
	// is known of it.
	Expected bool
	// Unfit says why a runner that shows no work should be removed at once although its template and the number are right; the zero value
	// for a sound one. It is set with StageStarting and StageIdle, because a busy runner is never removed. With StageTerminating it means that
	// the reason to ask still holds. With StageLost it is the reason instead of ReasonLost, such as ReasonRecovery.
	Unfit Unfit
	// Doubt says why a runner that shows no work is replaced like one of an older template, within the limits of a roll: it is unknown
	// whether it could still take work. The zero value for one without doubt. It is set with StageStarting and StageIdle, and with
	// StageTerminating, where it means that the reason to ask still holds.
	Doubt Unfit
	// ImagesMissing: its node lacks the images of the owner's present template. A serving runner of another template is not replaced for
	// that reason in the meantime. It is set with StageIdle, and with StageTerminating over StageIdle; one that does not serve yet has nothing to lose.
	ImagesMissing bool
	// Waiting is what a StageStarting runner is waiting for, in the words of the scheduler or the kubelet; empty when
	// nothing is known. It explains a timeout.
	Waiting string
}

// Load is what a node has of runners that stay: that hold it, and that nothing is about to remove.
type Load struct {
	// Runners is how many there are, Busy how many of them are busy.
	Runners, Busy int
}

// Load is what the runner adds to the Load of its node.
func (r Runner) Load() Load {
	switch {
	case r.Node == "":
		return Load{}
	case r.Stage == StageBusy && r.Removal != RemovalGranted:
		return Load{Runners: 1, Busy: 1}
	case r.Stage == StageStarting || r.Stage == StageIdle:
		return Load{Runners: 1}
	default:
		return Load{}
	}
}

func (l Load) plus(other Load) Load {
	return Load{Runners: l.Runners + other.Runners, Busy: l.Busy + other.Busy}
}

// Unfit is a reason to remove one runner, and a sentence for a person.
type Unfit struct {
	Reason Reason
	Detail string
}

// Ref names the runner for a fence, and reports whether it is lost (POOL-7).
func (r Runner) Ref(namespace, owner string) RunnerRef {
	return RunnerRef{Namespace: namespace, Name: r.Name, UID: r.UID, Owner: owner, Lost: r.Stage == StageLost}
}

// shows is the stage beneath a removal of ours, and when its clock began.
func (r Runner) shows() (Stage, time.Time) {
	if r.Stage == StageTerminating {
		return r.Shown, r.ShownSince
	}
	return r.Stage, r.Since
}

// Wish is what an owner wants.
type Wish struct {
	// Desired is the number of runners, busy ones included.
	Desired int
	// TemplateHash of new runners; others are replaced when they show no work.
	TemplateHash string
	// MaxUnavailable and MaxSurge limit a roll; it always moves at least one, unless nothing could take its place now
	// (HoldUntil, Starts).
	MaxUnavailable, MaxSurge int
	// StartTimeout is how long a runner may be StageStarting after it was placed. 0: no limit.
	StartTimeout time.Duration
	// UnschedulableTimeout is how long a runner may be StageStarting before it is placed, counted from its creation. 0:
	// no limit.
	UnschedulableTimeout time.Duration
	// IdleTimeout is how long a runner may be StageIdle, and MaxAge how old one that shows no work may be. One that exceeds either is
	// replaced like one of an older template, within the limits of a roll. 0: no limit.
	IdleTimeout, MaxAge time.Duration
	// LimitStarts limits creations to Starts, however many are missing: nodes have no more room to start them. It
	// removes nothing, and a roll moves no more serving runners than can be replaced under it. A roll continues only if
	// Starts is at least one when nothing of the owner is starting.
	LimitStarts bool
	Starts      int
	// LeaveTimeout is how long a runner whose deletion was accepted counts as present, so that a stuck one does not
	// hold its place forever. 0: it counts until it is gone.
	LeaveTimeout time.Duration
	// HoldUntil puts creations off, after creations or starts that failed.
	HoldUntil time.Time
	// Others are the runners of other owners, by node. A smaller number takes runners from the nodes that are nearest to being empty of
	// all of them.
	Others map[string]Load
	// KeepBooting protects runners that are StageStarting and have been placed, until the StartTimeout is over or they are
	// unfit for ReasonRegistrationTimeout. It is for runners whose identity is unknown before they register: one that is
	// just registering may be given a job at any moment, and its fence cannot say so yet.
	KeepBooting bool
	// KeepPending makes a smaller number wait for placed StageStarting runners of the present template. They are not removed
	// for it, and serving ones only as far as enough is left without them. KeepBooting implies it.
	KeepPending bool
	// Paused stops everything but the removal of what has ended or is lost.
	Paused bool
	// Terminating: the owner is being deleted. Nothing is created, what shows no work goes, busy ones are waited
	// for without a deadline.
	Terminating bool
}

// Reason says in one word why the plan wants something; it becomes an Event's reason.
type Reason string

// The reasons.
const (
	ReasonScaleUp      Reason = "ScaleUp"
	ReasonReplace      Reason = "Replace"
	ReasonSurge        Reason = "Surge"
	ReasonScaleDown    Reason = "ScaleDown"
	ReasonTemplate     Reason = "TemplateChanged"
	ReasonStartTimeout Reason = "StartTimeout"
	// ReasonRegistrationTimeout: its pod has been ready for long, and GitHub does not know it.
	ReasonRegistrationTimeout Reason = "RegistrationTimeout"
	ReasonDefective           Reason = "Defective"
	// ReasonUnschedulable: no node took it in time.
	ReasonUnschedulable Reason = "Unschedulable"
	// ReasonNodeCordoned: its node is cordoned, being deleted or shut down, or has a taint that announces its removal.
	ReasonNodeCordoned Reason = "NodeCordoned"
	// ReasonNodeNotReady: its node has been silent for long.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonIdleTimeout and ReasonMaxAge: it has waited too long, it is too old.
	ReasonIdleTimeout Reason = "IdleTimeout"
	ReasonMaxAge      Reason = "MaxAge"
	// ReasonRecovery: the server has proof that its work is over, whatever its pod shows.
	ReasonRecovery     Reason = "Recovery"
	ReasonOwnerDeleted Reason = "OwnerDeleted"
	ReasonFinished     Reason = "Finished"
	ReasonLost         Reason = "Lost"
	ReasonGranted      Reason = "Granted"
	ReasonWanted       Reason = "NeededAgain"
)

// Action is one thing to do to one runner, and why.
type Action struct {
	Runner Runner
	Reason Reason
	// Detail is a sentence for a person.
	Detail string
}

// Plan is what to do now.
type Plan struct {
	// Create is how many runners to create from the wish's template, and CreateReason why.
	Create       int
	CreateReason Reason
	// Ask are the runners to ask the fence for, in order of preference.
	Ask []Action
	// Delete are the runners to remove: those that have ended, and those that the fence has granted, lost ones among
	// them. The remover of a granted one asks again right before (EXCL-2).
	Delete []Action
	// Withdraw are the runners whose removal was not granted and is no longer needed: demand has returned, or the reason has passed.
	Withdraw []Action
	// Rolled is how many of the runners that are asked for a roll replaces: each will need a start, which this plan does
	// not create yet.
	Rolled int
	// Next is when to look again although nothing has changed; zero when there is no such time.
	Next time.Time
	// Delayed is the number of creations that wait for Wish.HoldUntil, Refused the number that Wish.Starts left out.
	Delayed, Refused int
	// Done: the owner is terminating and nothing of it is left.
	Done bool
}

// lookAt moves Next forward to t if that is earlier.
func (p *Plan) lookAt(t time.Time) {
	if !t.IsZero() && (p.Next.IsZero() || t.Before(p.Next)) {
		p.Next = t
	}
}
