package standin

import (
	"slices"
	"time"
)

// RunView is a workflow run as the admin API shows it.
type RunView struct {
	ID          int64      `json:"id"`
	Number      int64      `json:"number"`
	Repo        string     `json:"repo"`
	Workflow    string     `json:"workflow"`
	File        string     `json:"file"`
	Event       string     `json:"event"`
	Branch      string     `json:"branch"`
	SHA         string     `json:"sha"`
	Status      string     `json:"status"`     // waiting, queued, in_progress, completed
	Conclusion  string     `json:"conclusion"` // success, failure, cancelled, skipped; empty until completed
	CreatedAt   time.Time  `json:"created_at"`
	CompletedAt *time.Time `json:"completed_at"`
	Jobs        []int64    `json:"jobs"`
	// MissingSecrets are those that the file looks up and the stand-in has not; only in the answer to a submission.
	MissingSecrets []string `json:"missing_secrets,omitempty"`
}

// StepView is one step of a job.
type StepView struct {
	ID          string     `json:"id"`
	Number      int        `json:"number"`
	Name        string     `json:"name"`
	Status      string     `json:"status"`
	Conclusion  string     `json:"conclusion"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
}

// JobView is a job as the admin API shows it.
type JobView struct {
	ID     int64    `json:"id"`
	RunID  int64    `json:"run_id"`
	Key    string   `json:"key"` // the job's key in its workflow: "build", "build/3"
	Name   string   `json:"name"`
	Repo   string   `json:"repo"`
	Labels []string `json:"labels"`
	// Status is waiting, queued, in_progress or completed. Assigned says that a runner was chosen for a queued one.
	Status     string `json:"status"`
	Assigned   bool   `json:"assigned,omitempty"`
	Conclusion string `json:"conclusion"`
	Reason     string `json:"reason,omitempty"` // why, when it was not its runner that concluded it

	CreatedAt   time.Time  `json:"created_at"`
	QueuedAt    *time.Time `json:"queued_at"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`

	RunnerID   int64  `json:"runner_id"`
	RunnerName string `json:"runner_name"`
	// Assignments counts the runners chosen for it, Acquisitions those that took it: exactly one when all is well.
	Assignments  int      `json:"assignments"`
	Acquisitions int      `json:"acquisitions"`
	AcquiredBy   []string `json:"acquired_by,omitempty"`
	// RepeatedAcquires counts further requests by the same runner, whose answer had been lost.
	RepeatedAcquires int `json:"repeated_acquires,omitempty"`
	// Lost indicates that its runner fell silent while it ran.
	Lost  bool       `json:"lost"`
	Steps []StepView `json:"steps,omitempty"`
}

// RunnerView is a registration as the admin API shows it.
type RunnerView struct {
	ID        int64     `json:"id"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"` // "acme" or "acme/app"
	OS        string    `json:"os"`
	Labels    []string  `json:"labels"`
	Online    bool      `json:"online"`
	Busy      bool      `json:"busy"`
	JobID     int64     `json:"job_id,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// MintedFor is the job it was probably minted for: the oldest matching one at that time.
	MintedFor int64 `json:"minted_for,omitempty"`
}

// StateView sums everything up.
type StateView struct {
	Runs          int            `json:"runs"`
	RunsCompleted int            `json:"runs_completed"`
	Jobs          map[string]int `json:"jobs"`        // by status
	Conclusions   map[string]int `json:"conclusions"` // of completed jobs
	// Lost counts jobs whose runner fell silent; Requeued, assignments taken back because no runner acquired the
	// job in time.
	Lost     int `json:"lost"`
	Requeued int `json:"requeued"`
	// AcquiredTwice lists jobs that more than one runner took. It must be empty.
	AcquiredTwice []int64 `json:"acquired_twice"`
	Runners       int     `json:"runners"`
	Online        int     `json:"online"`
	Busy          int     `json:"busy"`
}

// StatsView is what a benchmark reads.
type StatsView struct {
	// Routes counts REST calls by "METHOD /route/{pattern}".
	Routes map[string]RouteCalls `json:"routes"`
	// Calls is the sum over all routes.
	Calls  int `json:"calls"`
	Minted int `json:"minted"`
	// Deliveries and FailedDeliveries count webhooks.
	Deliveries       int `json:"deliveries"`
	FailedDeliveries int `json:"failed_deliveries"`
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (r *run) view() RunView {
	v := RunView{
		ID: r.id, Number: r.number, Repo: r.repo.fullName(), Workflow: r.workflowName, File: r.fileName, Event: r.event,
		Branch: r.branch, SHA: r.sha, Status: r.status(), Conclusion: r.conclusion,
		CreatedAt: r.createdAt.UTC(), CompletedAt: moment(r.completedAt), Jobs: make([]int64, 0, len(r.jobs)),
	}
	for _, j := range r.jobs {
		v.Jobs = append(v.Jobs, j.id)
	}
	return v
}

func (j *job) view() JobView {
	return JobView{
		ID: j.id, RunID: j.run.id, Key: j.key, Name: j.name, Repo: j.run.repo.fullName(), Labels: slices.Clone(j.labels.names),
		Status: j.visible(), Assigned: j.state == jobAssigned, Conclusion: j.conclusion, Reason: j.reason,
		CreatedAt: j.createdAt.UTC(), QueuedAt: moment(j.queuedAt), StartedAt: moment(j.startedAt), CompletedAt: moment(j.completedAt),
		RunnerID: j.runnerID, RunnerName: j.runnerName, Assignments: j.assignments, Acquisitions: j.acquisitions,
		AcquiredBy: slices.Clone(j.acquirers), RepeatedAcquires: j.repeats, Lost: j.lost, Steps: slices.Clone(j.steps),
	}
}

func (s *Server) runnerViewLocked(rn *runner) RunnerView {
	v := RunnerView{
		ID: rn.id, Name: rn.name, Scope: rn.scope.path, OS: rn.os, Labels: slices.Clone(rn.labels.names),
		Online: rn.online(s.now(), s.opts.OfflineAfter), Busy: rn.job != nil, CreatedAt: rn.createdAt.UTC(),
	}
	if rn.job != nil {
		v.JobID = rn.job.id
	}
	if rn.intended != nil {
		v.MintedFor = rn.intended.id
	}
	return v
}
