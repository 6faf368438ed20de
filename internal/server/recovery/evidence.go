package recovery

import (
	"fmt"
	"time"
)

// Evidence is what is known about one pod and its claim, or about one job without a claim. Every field but Due has a few
// values, so that a test can walk all combinations.
type Evidence struct {
	Claim  ClaimIs
	Acked  YesNo // the configuration is known to have arrived
	Leased YesNo // a replica is working on the claim just now
	Proven YesNo // of a row that is over: its proof is written down
	Age    Age
	Job    JobIs // the job that the claim is for; of a job without a claim, that job

	Pod    PodIs
	Poller PollerIs
	Runner RunnerIs
	Label  YesNo // the owner label, or the owner's id without it

	Registrations RegistrationsAre
	Session       YesNo // a session is open although its pod is gone

	RunnerAtGitHub RunnerSays
	JobAtGitHub    JobSays

	// Due is when Age becomes Old; zero when it is.
	Due time.Time
}

// YesNo answers a question of the table.
type YesNo uint8

// The answers.
const (
	No YesNo = iota
	Yes
)

// ClaimIs the state of the pod's row.
type ClaimIs uint8

// The states, as in the table of claims.
const (
	NoRow ClaimIs = iota
	Claimed
	Minted
	Executing
	Spent
	Retired
)

// Age is how long it has been in this state. The required age is the pass's bound, and all bounds derive from one patience; a claim that
// was judged and left is young again until it is judged next.
type Age uint8

// The ages.
const (
	Young Age = iota
	Old
)

// JobIs the state of a job's row.
type JobIs uint8

// The states, as far as recovery tells them apart.
const (
	NoJob JobIs = iota
	Waits       // waiting or queued: the queue's own passes see to it
	Bound       // claimed or minted
	Runs        // executing
	Ended       // terminal, or a tombstone bars its way
)

// PodIs how an uncached list, read before the claims, shows the pod.
type PodIs uint8

// How a pod is shown.
const (
	Present  PodIs = iota
	Deleting       // it has a deletionTimestamp
	Terminal       // nothing runs in it
	Missing        // not listed, and that has not lasted
	Gone           // not listed for as long as patience, in two lists; or its end was reported and it cannot be read
)

// PollerIs the state of the poller's container.
type PollerIs uint8

// The states. A poller that has exited 0 has handed its answer over, or got the answer that there is nothing
// to do.
const (
	Polls PollerIs = iota
	Delivered
	Failed
)

// RunnerIs the state of the runner's container: the pod's own sign, which is asked before GitHub's (EXCL-6).
type RunnerIs uint8

// The states.
const (
	Starting RunnerIs = iota // it was never ready
	Ready                    // no job has started in it; it may have its configuration
	NotReady                 // it was ready and is no longer: a job has started, or it cannot tell
	Stopped
)

// RegistrationsAre what the ledger knows of the pod's registrations.
type RegistrationsAre uint8

// What is known.
const (
	AllGone RegistrationsAre = iota
	SomeOpen
)

// RunnerSays what GitHub says of the pod's registrations: the liveliest of them counts.
type RunnerSays uint8

// GitHub's words. Unreadable: no answer, or one that proves nothing.
const (
	RunnerNotAsked RunnerSays = iota
	RunnerAbsent
	RunnerOffline
	RunnerIdle
	RunnerBusy
	RunnerUnreadable
)

// JobSays what GitHub says of the job.
type JobSays uint8

// GitHub's words. JobGone is a 404 beside a repository that can be read.
const (
	JobNotAsked JobSays = iota
	JobQueued
	JobHere      // in progress on a registration of this pod
	JobElsewhere // in progress on another runner
	JobCompleted
	JobGone
	JobUnreadable
)

var (
	yesNoNames  = [...]string{No: "no", Yes: "yes"}
	claimNames  = [...]string{NoRow: "none", Claimed: "claimed", Minted: "minted", Executing: "executing", Spent: "spent", Retired: "retired"}
	ageNames    = [...]string{Young: "young", Old: "old"}
	jobNames    = [...]string{NoJob: "none", Waits: "waits", Bound: "bound", Runs: "runs", Ended: "ended"}
	podNames    = [...]string{Present: "present", Deleting: "deleting", Terminal: "terminal", Missing: "missing", Gone: "gone"}
	pollerNames = [...]string{Polls: "polls", Delivered: "delivered", Failed: "failed"}
	runnerNames = [...]string{Starting: "starting", Ready: "ready", NotReady: "no longer ready", Stopped: "stopped"}
	regsNames   = [...]string{AllGone: "all gone", SomeOpen: "open"}
	atNames     = [...]string{
		RunnerNotAsked: "not asked", RunnerAbsent: "absent", RunnerOffline: "offline", RunnerIdle: "idle", RunnerBusy: "busy",
		RunnerUnreadable: "unreadable",
	}
	saysNames = [...]string{
		JobNotAsked: "not asked", JobQueued: "queued", JobHere: "runs here", JobElsewhere: "runs elsewhere",
		JobCompleted: "completed", JobGone: "gone", JobUnreadable: "unreadable",
	}
)

// String writes the evidence down for logs and test output.
func (e Evidence) String() string {
	return fmt.Sprintf("claim %s (acknowledged %s, leased %s, proven %s, %s), job %s, pod %s (poller %s, runner %s, label %s), "+
		"registrations %s, session open %s; GitHub: runner %s, job %s",
		claimNames[e.Claim], yesNoNames[e.Acked], yesNoNames[e.Leased], yesNoNames[e.Proven], ageNames[e.Age], jobNames[e.Job],
		podNames[e.Pod], pollerNames[e.Poller], runnerNames[e.Runner], yesNoNames[e.Label],
		regsNames[e.Registrations], yesNoNames[e.Session], atNames[e.RunnerAtGitHub], saysNames[e.JobAtGitHub])
}

// Live reports whether the claim is charged and its pod may not be removed.
func (e Evidence) Live() bool { return e.Claim == Claimed || e.Claim == Minted || e.Claim == Executing }

// shows reports whether a pod without a live claim looks as if it had been given work: its removal is vetoed until it is proven that it has
// none (EXCL-4). A runner that is no longer ready counts: that may be its last known state.
func (e Evidence) shows() YesNo {
	if e.Label == Yes || e.Poller != Polls || e.Runner == NotReady || e.Claim == Spent {
		return Yes
	}
	return No
}

// possible reports whether the combination can exist. Fields that a row or a pod cannot show have their first value.
func (e Evidence) possible() bool {
	over := e.Claim == Spent || e.Claim == Retired
	seen := e.Pod == Present || e.Pod == Deleting
	asked := e.RunnerAtGitHub != RunnerNotAsked
	jobOnly := e.Claim == NoRow && e.Job != NoJob
	switch {
	case e.Acked == Yes && e.Claim != Minted && e.Claim != Executing:
		return false // only a configuration that was minted can arrive
	case e.Acked == No && e.Claim == Executing:
		return false // a runner that was given a job has its configuration
	case e.Leased == Yes && !e.Live(), e.Proven == Yes && !over:
		return false
	case !seen && (e.Poller != Polls || e.Runner != Starting || e.Label != No):
		return false // nothing is shown of it
	case over && e.Job != NoJob, e.Live() && e.Job == Waits:
		return false // a job is what a live claim is for; whose job waits has none
	case jobOnly && (e.Pod != Gone || e.Registrations != AllGone || e.Session == Yes || asked):
		return false // a job alone has no pod
	case e.Session == Yes && (e.Pod != Gone || e.Live()):
		return false // only such a session is evidence
	case (e.Job == NoJob || e.Job == Ended || e.Job == Waits) && e.JobAtGitHub != JobNotAsked:
		return false // there is nothing to ask
	case e.Live() && (e.Job == Bound || e.Job == Runs) && asked != (e.JobAtGitHub != JobNotAsked):
		return false // both are asked or none
	case e.Live() && e.JobAtGitHub == JobHere && e.Claim == Claimed && e.Registrations == AllGone:
		return false // no name of ours is known to GitHub
	default:
		return true
	}
}
