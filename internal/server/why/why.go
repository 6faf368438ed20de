package why

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Code names a cause. Codes are part of the API: they are not renamed.
type Code string

// The causes, in the order in which they are looked for: the first that holds is what has to change first.
const (
	NotHeardOf          Code = "not-heard-of"        // GitHub never told of it
	Forgotten           Code = "forgotten"           // it ended, and its record was cleared
	Ended               Code = "ended"               // it is over
	Running             Code = "running"             // a runner executes it
	WaitingAtGitHub     Code = "waiting-at-github"   // for an approval or its concurrency group
	NoPool              Code = "no-pool"             // no pool has its labels
	NoLabels            Code = "no-labels"           // runs-on names a runner group and no label
	SeveralPools        Code = "several-pools"       // more than one has: its jobs wait
	PoolPaused          Code = "pool-paused"         // an operator has paused or drained the pool
	NotInstalled        Code = "not-installed"       // the App was taken off the account
	SuspendedByGitHub   Code = "suspended-by-github" // the installation is suspended
	SuspendedByOperator Code = "suspended-by-operator"
	RepositoryRemoved   Code = "repository-removed" // the App was taken off the repository
	RepositoryAtLimit   Code = "repository-at-limit"
	LabelSetsAtLimit    Code = "label-sets-at-limit" // the account has jobs of as many label sets as one may have
	AccountAtLimit      Code = "account-at-limit"
	TooLarge            Code = "too-large"          // the account's limits never fit one runner of the pool
	GitHubLimit         Code = "github-limit"       // GitHub's rate limit
	RepositoryRefused   Code = "repository-refused" // GitHub registers no runner for the repository
	JobRefused          Code = "job-refused"        // GitHub registers no runner for this job
	PoolRefused         Code = "pool-refused"       // GitHub registers no runner of the pool at the account
	GroupClosed         Code = "group-closed"       // the runner group does not serve the repository
	NoRunnerGroup       Code = "no-runner-group"    // the account has no runner group of the pool's name or id
	GitHubFailing       Code = "github-failing"     // GitHub refuses or does not answer
	LedgerHeld          Code = "ledger-held"        // dispatch is held while a restored database is compared with GitHub
	PoolSaturated       Code = "pool-saturated"     // all runners work, and there may be no more
	PoolStarved         Code = "pool-starved"       // runners are wanted and do not start
	PoolEmpty           Code = "pool-empty"         // the pool is to have no runner
	PoolStarting        Code = "pool-starting"      // runners are starting
	BehindOthers        Code = "behind-others"      // older jobs are first
	AboutToBeClaimed    Code = "about-to-start"     // nothing is in the way
	Registering         Code = "registering"        // a runner is being registered for it
	RunnerStarting      Code = "runner-starting"    // a runner was registered and has not taken its configuration
	NotAssigned         Code = "not-assigned"       // the runner listens, and GitHub has not given it the job
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
	Held       string // what the job is set aside for: repository_limit, repository_removed, label_sets, refused, refused_job or empty
	Repository string
	Labels     []string
	Conclusion string
	RunnerName string // its pod's, or that at GitHub of a runner that is no pod of a pool
	QueuedAt   time.Time
	StartedAt  time.Time
	EndedAt    time.Time
}

// Account is whose job it is.
type Account struct {
	Login               string
	Installed           bool
	SuspendedByGitHub   bool
	SuspendedByOperator bool
	SuspensionReason    string // the operator's
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
	Ref                                    dispatch.PoolRef
	Platform                               fleet.Platform
	Shape                                  fleet.Shape
	Desired, Idle, Busy, Booting, Replicas int64
	// Saturated and Starved are the messages of those conditions, where they hold.
	Saturated, Starved string
}

// Evidence is what is known of one job at one moment.
type Evidence struct {
	Now       time.Time
	Job       Job
	Tombstone bool // the ledger remembers that it ended, and no more
	// Pools are all pools, by which the job's labels are routed.
	Pools   []dispatch.Pool
	Account Account
	Budget  Budget
	Ahead   int64 // queued jobs of the same account and labels that are older
	Mint    Mint
	Claim   *Claim
	Pool    Pool // of the one that serves it
	// Refusals are what GitHub has refused of the account, of the repository or of the job, the widest first.
	Refusals []dispatch.Refusal
	// Held says why dispatch is held altogether, if it is.
	Held string
}

// Explain returns what keeps the job from running, the cause that has to go first in front; further causes that hold as well
// follow it. There is always at least one answer. It is pure.
func Explain(e Evidence) []Reason {
	switch e.Job.State {
	case fleet.JobAbsent:
		return []Reason{absent(e)}
	case fleet.JobCompleted, fleet.JobCancelled, fleet.JobStale:
		return []Reason{ended(e)}
	case fleet.JobExecuting:
		return []Reason{{Code: Running, Sentence: fmt.Sprintf("Runner %s has executed it since %s.", named(e.Job.RunnerName), clock(e.Job.StartedAt))}}
	case fleet.JobWaiting:
		return []Reason{{
			Code:     WaitingAtGitHub,
			Sentence: "GitHub holds it back: it waits for an approval, for a deployment's protection rules, or for another run of its concurrency group.",
			Remedy:   "Look at the run on GitHub; Bullpen takes it as soon as GitHub queues it.",
		}}
	case fleet.JobClaimed, fleet.JobMinted:
		if e.Claim != nil {
			return []Reason{claimed(e)}
		}
	}
	return queued(e)
}

func absent(e Evidence) Reason {
	if e.Tombstone {
		return Reason{Code: Forgotten, Sentence: fmt.Sprintf("Job %d has ended, and its record was cleared since.", e.Job.ID)}
	}
	return Reason{
		Code:     NotHeardOf,
		Sentence: fmt.Sprintf("GitHub has not told of job %d: no webhook and no look at its queue has named it.", e.Job.ID),
		Remedy: "Check that the App is installed at the repository, that the App's recent deliveries at GitHub show the job (docs/guides/webhooks.md), " +
			"and that the job asks for labels of a self-hosted runner.",
	}
}

func ended(e Evidence) Reason {
	how := "It has ended"
	switch {
	case e.Job.State == fleet.JobStale:
		return Reason{Code: Ended, Sentence: "Nothing was heard of it for a day, so it is taken for ended."}
	case e.Job.Conclusion != "":
		how += " with " + e.Job.Conclusion
	case e.Job.State == fleet.JobCancelled:
		how = "It was cancelled"
	}
	if e.Job.RunnerName != "" {
		how += " on runner " + e.Job.RunnerName
	}
	return Reason{Code: Ended, Sentence: how + " at " + clock(e.Job.EndedAt) + "."}
}

func named(runner string) string {
	if runner == "" {
		return "of an unknown name"
	}
	return runner
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}
