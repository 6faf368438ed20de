package why

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Code names a cause. Codes are part of the API.
type Code string

// The causes, in the order in which they are looked for: the first that holds is what has to change first.
const (
	UnknownJob               Code = "unknown-job"         // no webhook, and not in GitHub's queue
	Forgotten                Code = "forgotten"           // it completed, and its record was deleted
	Completed                Code = "completed"           // it is completed
	Running                  Code = "running"             // it is running on a runner
	RunnerExited             Code = "runner-exited"       // its runner has exited or is lost, and GitHub has not reported the job as completed
	PendingApproval          Code = "pending-approval"    // of an approval, a protection rule or its concurrency group
	NoPool                   Code = "no-pool"             // no pool has its labels
	GitHubHosted             Code = "github-hosted"       // no pool has its labels, and GitHub's own runners have
	OtherRunners             Code = "other-runners"       // no pool has its labels, and runners of another fleet have
	NoLabels                 Code = "no-labels"           // runs-on names a runner group and no label
	SeveralPools             Code = "several-pools"       // more than one pool has its labels
	PoolPaused               Code = "pool-paused"         // an administrator has paused or drained the pool
	NotInstalled             Code = "not-installed"       // the App was uninstalled from the account
	SuspendedByGitHub        Code = "suspended-by-github" // the installation is suspended
	SuspendedByAdministrator Code = "suspended-by-administrator"
	RepositoryRemoved        Code = "repository-removed" // the App lost access to the repository
	RepositoryAtLimit        Code = "repository-at-limit"
	LabelSetsAtLimit         Code = "label-sets-at-limit" // the account has jobs of as many label sets as one may have
	AccountAtLimit           Code = "account-at-limit"
	TooLarge                 Code = "too-large"          // one runner of the pool exceeds the account's limits
	GitHubLimit              Code = "github-limit"       // GitHub's request quota is exhausted
	RepositoryRefused        Code = "repository-refused" // GitHub rejects registrations for the repository
	JobRefused               Code = "job-refused"        // GitHub rejects registrations for this job
	PoolRefused              Code = "pool-refused"       // GitHub rejects registrations of the pool at the account
	GroupClosed              Code = "group-closed"       // the runner group does not serve the repository
	NoRunnerGroup            Code = "no-runner-group"    // the account has no such runner group
	GitHubFailing            Code = "github-failing"     // requests to GitHub fail
	LedgerFrozen             Code = "ledger-frozen"      // nothing is dispatched while a restored database is compared with GitHub
	PoolSaturated            Code = "pool-saturated"     // all runners are busy, and the pool is at its maximum
	PoolStarved              Code = "pool-starved"       // desired runners cannot start
	PoolEmpty                Code = "pool-empty"         // the pool has no desired runners
	PoolStarting             Code = "pool-starting"      // runners are starting
	BehindOthers             Code = "behind-others"      // older jobs are first
	AboutToBeClaimed         Code = "about-to-start"     // the next idle runner takes it
	Registering              Code = "registering"        // its runner is being registered
	RunnerStarting           Code = "runner-starting"    // its runner is registered and has no configuration yet
	NotAssigned              Code = "not-assigned"       // the runner listens, and GitHub has not assigned the job yet
)

// Reason is one answer.
type Reason struct {
	Code Code
	// Sentence says what is so, in one sentence with numbers and names.
	Sentence string
	// Remedy says what to do, or that nothing is to be done. Empty where the sentence says all.
	Remedy string
	// Until is when it passes by itself, where that is known.
	Until time.Time
}

// Job is a workflow job as the ledger has it. State is fleet.JobAbsent for one that it lacks.
type Job struct {
	ID         int64
	State      fleet.JobState
	BlockedBy  string // what the job is blocked by: repository_limit, repository_removed, label_sets, refused, refused_job or empty
	Repository string
	Labels     []string
	Conclusion string
	RunnerName string // its pod's, or that at GitHub of a runner that is no pod of a pool
	RunnerExit string // how its runner exited, such as "code 137 (SIGKILL)"; empty: it has not, or it is not known
	LostAt     time.Time
	QueuedAt   time.Time
	StartedAt  time.Time
	EndedAt    time.Time
}

// Account is whose job it is.
type Account struct {
	Login                    string
	Installed                bool
	SuspendedByGitHub        bool
	SuspendedByAdministrator bool
	SuspensionReason         string // the administrator's
}

// Budget is what the account may use on the pool's platform, and uses.
type Budget struct {
	Limits          fleet.Limits
	Usage           fleet.Usage
	RepositoryUsage int64 // running jobs of the job's repository
}

// Mint is what keeps the account's runners from being registered now.
type Mint struct {
	Until   time.Time // zero: nothing does
	Limited bool      // by GitHub's rate limit; otherwise GitHub fails
	Why     string    // the last failure, in one line
	Status  int       // GitHub's, 0 where none is known
	Pool    bool      // in the pool that serves the job alone
	Group   string    // the pool's runner group, where the account has none of that name or id
}

// Claim is the live claim that was made for the job.
type Claim struct {
	Pod, Pool      string
	State          fleet.ClaimState
	ClaimedAt      time.Time
	MintedAt       time.Time
	AcknowledgedAt time.Time
}

// Pool is the pool that serves the job's labels, by its own status.
type Pool struct {
	Ref                                     dispatch.PoolRef
	Platform                                fleet.Platform
	Shape                                   fleet.Shape
	Desired, Idle, Busy, Starting, Replicas int64
	// Saturated and Starved are the messages of those conditions, where they hold.
	Saturated, Starved string
	// PullFailed is why a node cannot pull the pool's images, where one cannot.
	PullFailed string
}

// Evidence is what is known of one job at one moment.
type Evidence struct {
	Now       time.Time
	Job       Job
	Tombstone bool // the ledger remembers that it ended, and no more
	// Pools are all pools, by which the job's labels are routed.
	Pools   []dispatch.Pool
	Outside fleet.Outside // the runners outside of RunnerPools that have its labels
	Account Account
	Budget  Budget
	Ahead   int64 // queued jobs of the same account and labels that are older
	Mint    Mint
	Claim   *Claim
	Pool    Pool // of the one that serves it
	// Refusals are what GitHub has refused of the account, of the repository or of the job, the widest first.
	Refusals []dispatch.Refusal
	// Frozen is why nothing is dispatched at all; empty: the ledger is not frozen.
	Frozen string
}

// Explain returns what keeps the job from running, the cause that has to go first in front; further causes that hold as well
// follow it. There is always at least one answer. It is pure.
func Explain(e Evidence) []Reason {
	switch e.Job.State {
	case fleet.JobAbsent:
		return []Reason{absent(e)}
	case fleet.JobCompleted, fleet.JobCancelled, fleet.JobStale:
		return []Reason{completed(e)}
	case fleet.JobExecuting:
		return []Reason{running(e.Job)}
	case fleet.JobWaiting:
		return []Reason{{
			Code:     PendingApproval,
			Sentence: "Pending at GitHub: it needs an approval, a deployment protection rule, or the end of another run in its concurrency group.",
			Remedy:   "Check the run on GitHub. It starts here as soon as GitHub queues it.",
		}}
	case fleet.JobClaimed, fleet.JobMinted:
		if e.Claim != nil {
			return []Reason{claimed(e)}
		}
	}
	return queued(e)
}

// running says where the job is running, or that its runner no longer does.
func running(j Job) Reason {
	const remedy = "No action is needed: GitHub reports how the job completed, and fails it if its runner has been silent for some minutes."
	switch runner := named(j.RunnerName); {
	case !j.LostAt.IsZero():
		return Reason{
			Code:     RunnerExited,
			Sentence: fmt.Sprintf("It started on %s at %s. That runner was lost at %s, and GitHub has not reported the job as completed yet.", runner, clock(j.StartedAt), clock(j.LostAt)),
			Remedy:   remedy,
		}
	case j.RunnerExit != "":
		return Reason{
			Code:     RunnerExited,
			Sentence: fmt.Sprintf("It started on %s at %s. That runner exited with %s, and GitHub has not reported the job as completed yet.", runner, clock(j.StartedAt), j.RunnerExit),
			Remedy:   remedy,
		}
	default:
		return Reason{Code: Running, Sentence: fmt.Sprintf("Running on %s since %s.", runner, clock(j.StartedAt))}
	}
}

func absent(e Evidence) Reason {
	if e.Tombstone {
		return Reason{Code: Forgotten, Sentence: fmt.Sprintf("Job %d completed, and its record has been deleted.", e.Job.ID)}
	}
	return Reason{
		Code:     UnknownJob,
		Sentence: fmt.Sprintf("Unknown job %d: no webhook received, and it is not in GitHub's queue.", e.Job.ID),
		Remedy: "Check that the App is installed in the repository, and that the App's recent deliveries at GitHub include the job " +
			"(docs/guides/webhooks.md).",
	}
}

// conclusions are GitHub's, as the beginning of a sentence.
var conclusions = map[string]string{
	"success": "Succeeded", "failure": "Failed", "cancelled": "Cancelled", "timed_out": "Timed out", "skipped": "Skipped",
}

// completed says how a job completed, where and when.
func completed(e Evidence) Reason {
	if e.Job.State == fleet.JobStale {
		return Reason{Code: Completed, Sentence: "Marked stale: GitHub has not reported it as queued for 24 hours."}
	}
	conclusion := e.Job.Conclusion
	if conclusion == "" && e.Job.State == fleet.JobCancelled {
		conclusion = "cancelled"
	}
	how, known := conclusions[conclusion]
	switch {
	case conclusion == "":
		how = "Completed"
	case !known:
		how = "Completed with conclusion " + conclusion
	}
	if e.Job.RunnerName != "" {
		how += " on runner " + e.Job.RunnerName
	}
	how += " at " + clock(e.Job.EndedAt)
	if conclusion == "skipped" {
		how += "; it never needed a runner"
	}
	return Reason{Code: Completed, Sentence: how + "."}
}

func named(runner string) string {
	if runner == "" {
		return "an unknown runner"
	}
	return runner
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}
