package adminapi

// States of jobs. GitHub calls the first one waiting, and the next three queued.
const (
	JobPendingApproval = "pending_approval" // an approval, a protection rule or a concurrency group
	JobQueued          = "queued"           // it may start
	JobBlocked         = "blocked"          // queued, and BlockedBy says what holds it back
	JobAssigned        = "assigned"         // a runner was claimed for it
	JobRunning         = "running"
	JobCompleted       = "completed" // Conclusion says how
)

// JobStates are all states, in the order of a job's life.
func JobStates() []string {
	return []string{JobPendingApproval, JobQueued, JobBlocked, JobAssigned, JobRunning, JobCompleted}
}

// Conclusions of jobs for which GitHub has not sent one.
const (
	ConclusionCancelled = "cancelled"
	ConclusionStale     = "stale" // GitHub has not reported it as queued for 24 hours
)
