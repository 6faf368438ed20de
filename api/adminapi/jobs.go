package adminapi

import "time"

// PathJobs lists jobs; one job is PathJobs + "/" + its ID, and why it is queued is at that + "/why".
const PathJobs = "/api/v1/jobs"

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
	State        string     `json:"state"`               // pending_approval, queued, blocked, assigned, running or completed
	BlockedBy    string     `json:"blockedBy,omitempty"` // why it is blocked: repository_limit, repository_removed, label_sets, refused or refused_job
	Conclusion   string     `json:"conclusion,omitempty"`
	RunnerName   string     `json:"runnerName,omitempty"`   // at GitHub, of the runner that runs it or is registered for it
	Pool         string     `json:"pool,omitempty"`         // of its runner; in lists, not of completed jobs
	Pod          string     `json:"pod,omitempty"`          // as Pool
	PodNamespace string     `json:"podNamespace,omitempty"` // not in lists
	QueuedAt     time.Time  `json:"queuedAt"`
	ReceivedAt   *time.Time `json:"receivedAt,omitempty"`     // of GitHub's first event
	ApprovedAt   *time.Time `json:"approvedAt,omitempty"`     // it was pending approval until then
	ClaimedAt    *time.Time `json:"claimedAt,omitempty"`      // a pod was claimed; as Pool
	RegisteredAt *time.Time `json:"registeredAt,omitempty"`   // its runner was registered; as Pool
	Acknowledged *time.Time `json:"acknowledgedAt,omitempty"` // the pod has its configuration; as Pool
	StartedAt    *time.Time `json:"startedAt,omitempty"`
	CompletedAt  *time.Time `json:"completedAt,omitempty"`
	// ExitCode is the runner's, if known; not in lists.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// RunnerLostAt is when the runner was lost while it ran the job; not in lists.
	RunnerLostAt *time.Time `json:"runnerLostAt,omitempty"`
	// TraceID is the ID of its OpenTelemetry trace, if it is traced; not in lists.
	TraceID string `json:"traceId,omitempty"`
	// TraceURL is the URL of the trace, if the server is configured with one; not in lists.
	TraceURL string `json:"traceUrl,omitempty"`
	// Timeline is not in lists.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Timeline is the life of a job.
type Timeline struct {
	// Steps are those reached so far, in order: queued, received, approved, claimed, registered, acknowledged, running, completed. Queued,
	// running and completed are from GitHub, in whole seconds of its clock.
	Steps []TimelineStep `json:"steps"`
	// Split is the duration of each phase: webhook, approval, dispatch, registration, handover, start, run. They add up to the time between
	// the first and the last step.
	Split []TimelinePhase `json:"split"`
}

// TimelineStep is a step and its time.
type TimelineStep struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// TimelinePhase is a phase and its duration.
type TimelinePhase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// JobList is one page, newest first.
type JobList struct {
	Jobs []Job `json:"jobs"`
	Next int64 `json:"next,omitempty"` // the "before" of the next page; 0: this is the last
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
