package adminapi

import "time"

// PathJobs lists jobs; one job is PathJobs + "/" + its id, and why it waits is at that + "/why".
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

// ResourceJobs is what Kubernetes is asked about for jobs.
const ResourceJobs = "jobs"

// Job is one workflow job, as GitHub has told of it and as the ledger has it.
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
	Labels       []string   `json:"labels"`         // what runs-on asks for
	State        string     `json:"state"`          // waiting, queued, claimed, minted, executing, completed, cancelled or stale
	Held         string     `json:"held,omitempty"` // why a queued one is set aside: repository_limit, repository_removed or label_sets
	Conclusion   string     `json:"conclusion,omitempty"`
	RunnerName   string     `json:"runnerName,omitempty"`   // at GitHub, of the runner that has the job, or that was registered for it
	Pool         string     `json:"pool,omitempty"`         // of its runner, once a pod was claimed; it stays when the job has completed
	Pod          string     `json:"pod,omitempty"`          // as Pool
	PodNamespace string     `json:"podNamespace,omitempty"` // as Pool
	QueuedAt     time.Time  `json:"queuedAt"`
	ReceivedAt   *time.Time `json:"receivedAt,omitempty"`     // GitHub's first event of it was taken
	ApprovedAt   *time.Time `json:"approvedAt,omitempty"`     // it had waited at GitHub until then
	ClaimedAt    *time.Time `json:"claimedAt,omitempty"`      // a pod was claimed; as Pool
	MintedAt     *time.Time `json:"mintedAt,omitempty"`       // its runner was registered; as Pool
	Acknowledged *time.Time `json:"acknowledgedAt,omitempty"` // the pod has its configuration; as Pool
	StartedAt    *time.Time `json:"startedAt,omitempty"`
	CompletedAt  *time.Time `json:"completedAt,omitempty"`
	// ExitCode is the runner's, when its pod has terminated and Kubernetes knew it.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// RunnerLostAt is when the pod was lost with the job in it.
	RunnerLostAt *time.Time `json:"runnerLostAt,omitempty"`
	// URL and RunURL are the pages of the job and of its run at GitHub; left out where GitHub has no pages.
	URL    string `json:"url,omitempty"`
	RunURL string `json:"runUrl,omitempty"`
	// TraceID is that of its OpenTelemetry trace, if it is traced; of one job.
	TraceID string `json:"traceId,omitempty"`
	// TraceURL is where the trace is shown, if the server was told; of one job.
	TraceURL string `json:"traceUrl,omitempty"`
	// Timeline is there when one job was asked for.
	Timeline *Timeline `json:"timeline,omitempty"`
}

// Timeline is what became of a job, and where the time went.
type Timeline struct {
	// Steps are those that were taken, in the order of a job's life: queued, received, approved, claimed, minted, acknowledged, executing,
	// ended. No step is before the one above it: where GitHub's whole seconds contradict the server's clock, the server's clock holds.
	Steps []TimelineStep `json:"steps"`
	// Split says what took how long, up to the last step: webhook, approval, dispatch, mint, handover, start, run. It adds up to the time
	// between the first and the latest step.
	Split []TimelinePhase `json:"split"`
	// Open is the phase that has not ended; left out of a job that has completed.
	Open *TimelineOpen `json:"open,omitempty"`
}

// TimelineStep is a step and when it was taken.
type TimelineStep struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// WholeSeconds: it is GitHub's word, which has no fractions of a second.
	WholeSeconds bool `json:"wholeSeconds,omitempty"`
}

// TimelineOpen is a phase that goes on, and since when.
type TimelineOpen struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
}

// TimelinePhase is what took time.
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

// Why says why a job has no runner yet, or what became of it.
type Why struct {
	JobID int64 `json:"jobId"`
	// Job is what the ledger has of it; nil when it has nothing.
	Job *Job `json:"job,omitempty"`
	// Reasons are at least one; the first has to go first.
	Reasons []Reason `json:"reasons"`
}

// Reason is one answer. Codes are stable, sentences are not.
type Reason struct {
	Code     string     `json:"code"`
	Sentence string     `json:"sentence"`
	Remedy   string     `json:"remedy,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // when it passes by itself, if that is known
}
