package adminapi

// States of jobs. GitHub calls the first one waiting, and the next five queued. A job that is queued at GitHub has one of the states queued, blocked,
// no_pool and elsewhere, by one definition: pools, accounts and lists of jobs count the same.
const (
	JobPendingApproval = "pending_approval" // an approval, a protection rule or a concurrency group
	JobQueued          = "queued"           // it may start
	JobBlocked         = "blocked"          // it may not start, although a pool serves it; BlockedBy says why
	JobNoPool          = "no_pool"          // no pool serves its labels
	JobElsewhere       = "elsewhere"        // no pool serves its labels, and GitHub's own runners or another fleet's do
	JobAssigned        = "assigned"         // a runner was claimed for it
	JobRunning         = "running"
	JobCompleted       = "completed" // Conclusion says how
)

// JobStates are all states, in the order of a job's life.
func JobStates() []string {
	return []string{JobPendingApproval, JobQueued, JobBlocked, JobNoPool, JobElsewhere, JobAssigned, JobRunning, JobCompleted}
}

// Conclusions of jobs for which GitHub has not sent one.
const (
	ConclusionCancelled = "cancelled"
	ConclusionStale     = "stale" // GitHub has not reported it as queued for 24 hours
)
