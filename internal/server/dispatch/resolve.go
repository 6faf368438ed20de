package dispatch

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// JobEvent is a workflow_job event.
type JobEvent struct {
	Kind    fleet.JobEvent // waiting, queued, in_progress, completed or cancelled
	Account Account        // of the repository's owner, with the installation that sent it

	JobID      int64
	Repository string // owner/name
	// RepositoryID is GitHub's, 0 where it is not known. With it, the repository's rows follow it to another name.
	RepositoryID int64
	RunID        int64
	RunAttempt   int64
	Name         string
	Workflow     string
	HeadBranch   string
	HeadSHA      string
	Labels       []string
	Conclusion   string

	RunnerName string // empty until a runner has it
	RunnerID   int64

	QueuedAt    time.Time
	StartedAt   time.Time
	CompletedAt time.Time
}

// Recorded is what recording an event did, for metrics and for what follows the transaction.
type Recorded struct {
	Fresh     bool // false: this delivery was recorded before
	Outcome   fleet.Outcome
	Queued    bool // dispatch has something to do
	Adoption  bool // a runner must be confirmed with GitHub
	Foreign   bool // a foreign runner of the account has a name that was registered for another account
	Displaced int64
	// Started is there when a runner of ours was given its job by this event.
	Started *Started
	// Ended is there when a job that was given to a runner of ours, or that a pod of ours was claimed for, ended by this event.
	Ended *Ended
}

// Started is a job that one of our runners has begun.
type Started struct {
	Pool  string
	Times fleet.JobTimes // up to Executing
}

// Ended is a job that is over.
type Ended struct {
	Pool  string         // empty when no pod of ours had it
	Times fleet.JobTimes // Queued, Executing if it ran, and Ended
}

// Facts are the rows an event can touch, locked.
type Facts struct {
	State    fleet.JobState
	Buried   bool        // a tombstone exists
	ByRunner *ClaimFacts // the claim whose current registration has the named runner's name
	ByJob    *ClaimFacts // the live claim that holds the event's job
}

// ClaimFacts is a claim as far as an event is concerned.
type ClaimFacts struct {
	PodUID    string
	AccountID int64
	State     fleet.ClaimState
	JobID     int64
}

// Change is what an event does; the zero value does nothing.
type Change struct {
	Outcome fleet.Outcome
	State   fleet.JobState // of the event's job, when Outcome is Move

	Execute string // this pod's claim executes the event's job now
	Spend   string // this pod's claim has done its work
	Requeue int64  // the job that claim was minted for goes back to the queue (CLAIM-9)
	Unbind  string // this pod's claim lost its job to another runner; it takes the next of its lane
	Adopt   string // this pod's runner must be confirmed with GitHub (CLAIM-13)
}

// Resolve decides what an event does. It is the only place that knows how GitHub's word and our claims meet: GitHub
// binds a runner to a set of labels, so the runner minted for job A routinely executes job B.
func Resolve(ev JobEvent, f Facts) Change {
	if f.Buried && f.State == fleet.JobAbsent {
		return Change{Outcome: fleet.Keep} // CLAIM-4: its row is gone, its tombstone is not
	}
	next, outcome := fleet.NextJobState(f.State, ev.Kind)
	change := Change{Outcome: outcome, State: next}
	if outcome == fleet.Refuse || ev.Kind == fleet.JobEventQueued || ev.Kind == fleet.JobEventWaiting {
		return change
	}
	if ev.Kind == fleet.JobEventStarted && f.State.Terminal() {
		return change // a late in_progress revives no claim
	}
	runner := f.ByRunner
	if runner != nil && runner.AccountID != ev.Account.ID && runner.AccountID != 0 {
		runner = nil // CLAIM-8: by runner name within the account that sent the event
	}
	bindRunner(&change, ev, f, runner)
	if f.ByJob != nil && (runner == nil || f.ByJob.PodUID != runner.PodUID) {
		// One that executes keeps its pod and charge, but not a job that is bound to another runner now (CLAIM-1).
		if f.ByJob.State != fleet.ClaimExecuting || change.Execute != "" || change.Spend != "" {
			change.Unbind = f.ByJob.PodUID
		}
	}
	return change
}

// bindRunner decides about the runner that the event names.
func bindRunner(change *Change, ev JobEvent, f Facts, runner *ClaimFacts) {
	if ev.RunnerName == "" {
		return
	}
	ended := ev.Kind == fleet.JobEventCompleted || ev.Kind == fleet.JobEventCancelled
	if runner == nil || !runner.State.Live() {
		uid, ours := runnerpod.PodUID(ev.RunnerName)
		if ours && !ended && (f.State != fleet.JobExecuting || f.ByJob != nil && f.ByJob.PodUID != uid) {
			change.Adopt = uid
		}
		return
	}
	if runner.State == fleet.ClaimExecuting && runner.JobID != ev.JobID && runner.JobID != 0 {
		return // single-shot: a runner that executes one job never takes a second; GitHub's word on the first stands
	}
	if runner.JobID != ev.JobID && runner.JobID != 0 {
		change.Requeue = runner.JobID // CLAIM-9: re-bind first, then take effect
	}
	if ended {
		change.Spend = runner.PodUID
	} else {
		change.Execute = runner.PodUID
	}
}
