package adminapi

import "time"

// PathJobs lists jobs; one job is PathJobs + "/" + its ID, and why it is queued is at that + "/why".
const PathJobs = "/api/v1/jobs"

// PathConclusions counts how the jobs of the last hour have completed.
const PathConclusions = "/api/v1/conclusions"

// MaxCounted is how many of the newest completed jobs are counted at most.
const MaxCounted = 1000

// ConclusionCounts says how jobs have completed in the last hour.
type ConclusionCounts struct {
	Since  time.Time        `json:"since"`
	Counts map[string]int64 `json:"counts"` // jobs by their conclusion
	Failed int64            `json:"failed"` // jobs that went wrong: failure, timed_out and startup_failure
	// More: the newest MaxCounted are counted, and more have completed.
	More bool `json:"more,omitempty"`
}

// ResourceJobs is the resource of access reviews for jobs.
const ResourceJobs = "jobs"

// Job is one workflow job.
type Job struct {
	ID           int64      `json:"id"` // GitHub's
	RunID        int64      `json:"runId"`
	RunAttempt   int64      `json:"runAttempt"`
	Account      string     `json:"account"`    // its login
	Repository   string     `json:"repository"` // owner/name
	Workflow     string     `json:"workflow"`
	Name         string     `json:"name"`
	Branch       string     `json:"branch,omitempty"`
	Commit       string     `json:"commit,omitempty"`
	Labels       []string   `json:"labels"`              // what runs-on asks for
	State        string     `json:"state"`               // pending_approval, queued, blocked, no_pool, elsewhere, assigned, running or completed
	BlockedBy    string     `json:"blockedBy,omitempty"` // why it is blocked: account_limit, repository_limit, repository_removed, label_sets, suspended, pool_paused, label_conflict, backoff, runner_group, refused or refused_job
	Conclusion   string     `json:"conclusion,omitempty"`
	RunnerName   string     `json:"runnerName,omitempty"`   // at GitHub, of the runner that runs it or is registered for it
	Pool         string     `json:"pool,omitempty"`         // of its runner, once a pod was claimed; it stays when the job has completed
	Pod          string     `json:"pod,omitempty"`          // as Pool
	PodNamespace string     `json:"podNamespace,omitempty"` // as Pool
	QueuedAt     time.Time  `json:"queuedAt"`
	ReceivedAt   *time.Time `json:"receivedAt,omitempty"`     // of GitHub's first event
	ApprovedAt   *time.Time `json:"approvedAt,omitempty"`     // it was pending approval until then
	ClaimedAt    *time.Time `json:"claimedAt,omitempty"`      // a pod was claimed; as Pool
	RegisteredAt *time.Time `json:"registeredAt,omitempty"`   // its runner was registered; as Pool
	Acknowledged *time.Time `json:"acknowledgedAt,omitempty"` // the pod has its configuration; as Pool
	StartedAt    *time.Time `json:"startedAt,omitempty"`
	CompletedAt  *time.Time `json:"completedAt,omitempty"`
	// ExitCode is the runner's, if known.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// RunnerLostAt is when the runner was lost while it ran the job.
	RunnerLostAt *time.Time `json:"runnerLostAt,omitempty"`
	// URL and RunURL are the pages of the job and of its run at GitHub; left out where GitHub has no pages.
	URL    string `json:"url,omitempty"`
	RunURL string `json:"runUrl,omitempty"`
	// TraceID is the ID of its OpenTelemetry trace, if it is traced; not in lists.
	TraceID string `json:"traceId,omitempty"`
	// TraceURL is the URL of the trace, if the server is configured with one; not in lists.
	TraceURL string `json:"traceUrl,omitempty"`
	// Timeline is not in lists.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Timeline is the life of a job.
type Timeline struct {
	// Steps are those reached so far, in order: queued, received, approved, claimed, registered, acknowledged, running, completed. No step is
	// before the one above it: where GitHub's whole seconds contradict the server's clock, the server's clock holds.
	Steps []TimelineStep `json:"steps"`
	// Split is the duration of each phase: webhook, approval, dispatch, registration, handover, start, run. They add up to the time between
	// the first and the last step.
	Split []TimelinePhase `json:"split"`
	// Open is the phase that has not ended; left out of a job that has completed.
	Open *TimelineOpen `json:"open,omitempty"`
}

// TimelineStep is a step and its time.
type TimelineStep struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// WholeSeconds: the time is GitHub's, which has no fractions of a second.
	WholeSeconds bool `json:"wholeSeconds,omitempty"`
}

// TimelineOpen is a phase that goes on, and since when.
type TimelineOpen struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
}

// TimelinePhase is a phase and its duration.
type TimelinePhase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// WholeSeconds: it begins or ends with a time of GitHub's, which has no fractions of a second.
	WholeSeconds bool `json:"wholeSeconds,omitempty"`
}

// JobList is one page, newest first.
type JobList struct {
	Jobs []Job `json:"jobs"`
	// Next is the "before" of the next page; 0: this is the last. A search reads a bounded number of jobs for each page: a page may be empty and have a
	// next one.
	Next int64 `json:"next,omitempty"`
}

// Why is why a job has no runner yet, or its outcome.
type Why struct {
	JobID int64 `json:"jobId"`
	// Job is left out if it is unknown.
	Job *Job `json:"job,omitempty"`
	// Reasons has at least one entry, the most important first.
	Reasons []Reason `json:"reasons"`
}

// Reason is one cause. Codes are stable, sentences are not.
type Reason struct {
	Code     string     `json:"code"`
	Sentence string     `json:"sentence"`
	Remedy   string     `json:"remedy,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // when it resolves itself, if known
}
