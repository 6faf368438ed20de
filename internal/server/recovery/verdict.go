package recovery

import "time"

// Kind names a row of the table: the label of its counter, and what its kill switch is called.
type Kind string

// The kinds. Those of the queue are judged by its own passes and have their place here, so that one list names everything
// that recovers anything.
const (
	None Kind = "" // nothing is wrong, or nothing may be done

	StaleClaim           Kind = "stale_claim"             // claimed or minted, and silent since
	OrphanedRunner       Kind = "orphaned_runner"         // its runner is gone, its job waits
	AgentNeverRegistered Kind = "agent_never_registered"  // it has its configuration and never came online
	OrphanCompleted      Kind = "orphan_completed"        // its job has ended without a report
	PodMissingClaim      Kind = "pod_missing_claim"       // its pod is gone
	IdleRunner           Kind = "idle_runner"             // it is online and receives no job
	StoppedPod           Kind = "stopped_pod"             // its pod is being stopped before its job has begun
	UnregisteredRunner   Kind = "unregistered_runner"     // recovery has removed its registrations, and no job has started
	OrphanedLabelledPod  Kind = "orphaned_labelled_pod"   // the pod shows work without a claim
	UnknownRunner        Kind = "unknown_runner"          // its runner is busy without a claim
	UnclaimedJob         Kind = "unclaimed_job"           // a job's row says that a claim has it, and none has
	MissingLabel         Kind = "missing_label"           // it is busy, and its pod does not name the owner
	StaleLabel           Kind = "stale_label"             // its label shows work, and it polls
	UnstartedExecution   Kind = "unstarted_execution"     // GitHub runs the job, and its row does not say so
	OrphanedSession      Kind = "orphaned_runner_session" // a session is open whose pod is gone
	OrphanedRegistration Kind = "orphaned_registration"   // a registration is open whose pod's work is over
	QueuedReaped         Kind = "queued_reaped"           // of the queue: a job waits too long
	Redelivered          Kind = "redelivered"             // of the queue: a webhook never arrived
	QueueSwept           Kind = "queue_swept"             // of the queue: a job without a delivery
	LostJobRerun         Kind = "lost_job_rerun"          // of the queue: a job failed because its node died
)

// Kinds lists every kind, in the order of the documentation.
func Kinds() []Kind {
	return []Kind{
		StaleClaim, OrphanedRunner, AgentNeverRegistered, OrphanCompleted, PodMissingClaim, IdleRunner, StoppedPod, UnregisteredRunner, OrphanedLabelledPod,
		UnknownRunner, UnclaimedJob, MissingLabel, StaleLabel, UnstartedExecution, OrphanedSession, OrphanedRegistration,
		QueuedReaped, Redelivered, QueueSwept, LostJobRerun,
	}
}

// OfTheQueue reports whether the kind is found by reading GitHub's queue and its deliveries, by package catchup, and not by
// judging evidence about a pod or a job.
func (k Kind) OfTheQueue() bool {
	return k == QueuedReaped || k == Redelivered || k == QueueSwept || k == LostJobRerun
}

// Action is the action for a verdict.
type Action uint8

// The actions. Each is one step: afterwards the evidence is another, and is judged again.
const (
	Undefined     Action = iota // no row of the table matches: a fault of the table
	Leave                       // nothing
	Wait                        // nothing before Verdict.Until
	Ask                         // GitHub, about the pod's registrations and the job
	Release                     // remove the registrations; the claim ends, the job is queued again. A healthy pod stays warm
	ReleaseRetire               // the same, and the pod is removed
	Unregister                  // remove the registrations; the claim stays until the pod has been seen after that
	Adopt                       // the pod is busy again
	Complete                    // record that the job has ended, as its webhook would have
	MarkExecuting               // record which runner has the job, as its webhook would have
	Requeue                     // the job is queued again
	RetirePod                   // remove what GitHub still lists of it; the pod is removed, with that as the proof
	NoteOwner                   // write the owner's id onto the pod, without the label
	TakeOffLabel
	CloseSession
	CloseRegistrations // remove them at GitHub, or prove them gone
)

var actionNames = [...]string{
	Undefined: "undefined", Leave: "leave", Wait: "wait", Ask: "ask GitHub", Release: "release", ReleaseRetire: "release and retire",
	Unregister: "remove the registrations",
	Adopt:      "adopt", Complete: "complete", MarkExecuting: "mark executing", Requeue: "queue again", RetirePod: "retire the pod",
	NoteOwner: "note the owner", TakeOffLabel: "take off the label", CloseSession: "close the session",
	CloseRegistrations: "close the registrations",
}

// String names the action for logs and test output.
func (a Action) String() string { return actionNames[a] }

// takes reports whether the action may cost a runner that works its registration, its claim or its pod.
func (a Action) takes() bool {
	return a == Release || a == ReleaseRetire || a == Unregister || a == RetirePod
}

// Verdict is the action for one pod or job, and its reason.
type Verdict struct {
	Do   Action
	Kind Kind
	// Why is a sentence for people.
	Why string
	// Doubt: nothing is done because GitHub could not be read, or does not say what the pod shows. It is counted.
	Doubt bool
	// Until is when it is worth judging again, of Wait; zero if only an event can tell.
	Until time.Time
}

// set is a choice of values of one column; none chosen is any.
type set uint16

func in[T ~uint8](values ...T) set {
	var s set
	for _, v := range values {
		s |= 1 << v
	}
	return s
}

func has[T ~uint8](s set, v T) bool { return s == 0 || s&(1<<v) != 0 }

// row of the table: the columns that matter, and the verdict. The first row that matches decides.
type row struct {
	claim, acked, leased, proven, age, job set
	pod, poller, runner, label, shows      set
	regs, session                          set
	at                                     set // GitHub on the runner
	says                                   set // GitHub on the job

	do    Action
	kind  Kind
	why   string
	doubt bool
}

func (r *row) matches(e *Evidence) bool {
	return has(r.claim, e.Claim) && has(r.acked, e.Acked) && has(r.leased, e.Leased) && has(r.proven, e.Proven) &&
		has(r.age, e.Age) && has(r.job, e.Job) && has(r.pod, e.Pod) && has(r.poller, e.Poller) && has(r.runner, e.Runner) &&
		has(r.label, e.Label) && (r.shows == 0 || has(r.shows, e.shows())) && has(r.regs, e.Registrations) &&
		has(r.session, e.Session) && has(r.at, e.RunnerAtGitHub) && has(r.says, e.JobAtGitHub)
}

// Judge reads the table. It is a pure function.
func Judge(e Evidence) Verdict {
	for i := range table {
		if r := &table[i]; r.matches(&e) {
			v := Verdict{Do: r.do, Kind: r.kind, Why: r.why, Doubt: r.doubt}
			if r.do == Wait {
				v.Until = e.Due
			}
			return v
		}
	}
	return Verdict{Why: "no row of the table matches"}
}
