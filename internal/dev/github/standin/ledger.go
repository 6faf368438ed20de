package standin

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Why an assignment ended that was never acquired. One that was acquired ends with the conclusion of its job, or as lost.
const (
	endNotAcquired = "not acquired in time"
	endSession     = "session ended"
	endWithdrawn   = "withdrawn"
	endLost        = "runner lost"
)

// Who took a registration away, besides an installation by the API.
const (
	removedAfterJob = "its one job ended"
	removedOffline  = "offline too long"
)

func removedBy(who caller) string {
	if who.person != nil {
		return "api: user " + who.person.Name
	}
	return fmt.Sprintf("api: installation %d", who.installation())
}

// Given is one time that GitHub gave a job to a runner.
type Given struct {
	RunnerID   int64      `json:"runner_id"`
	Runner     string     `json:"runner"`
	AssignedAt time.Time  `json:"assigned_at"`
	AcquiredAt *time.Time `json:"acquired_at"`
	EndedAt    *time.Time `json:"ended_at"`
	// End is the conclusion of the job, "runner lost", or why it went no further: "not acquired in time" and "session
	// ended" (it was queued again), "withdrawn" (it was cancelled).
	End string `json:"end,omitempty"`
}

// endGiven ends the latest assignment.
func (j *job) endGiven(why string, now time.Time) {
	if n := len(j.given); n > 0 && j.given[n-1].EndedAt == nil {
		j.given[n-1].End, j.given[n-1].EndedAt = why, moment(now)
	}
}

// JobRecord is everything that GitHub saw of a job. Times between are in Given.
type JobRecord struct {
	JobView
	// Attempt is the run's attempt that the job belongs to, 1 for the first.
	Attempt int `json:"attempt"`
	// Given lists every runner it was given to, in order. Requeues counts how often it was queued again; GitHub sends no
	// webhook for that.
	Given    []Given `json:"given"`
	Requeues int     `json:"requeues"`
	// VanishedMidJob indicates that its runner stopped renewing it: the runner was killed, or cut off.
	VanishedMidJob bool `json:"vanished_mid_job"`
	// Cancelled indicates that its cancellation was asked for while a runner held it.
	Cancelled bool `json:"cancelled"`
}

// RunnerRecord is everything that GitHub saw of a registration. Removed ones stay in the ledger.
type RunnerRecord struct {
	ID        int64    `json:"id"`
	Name      string   `json:"name"`
	Scope     string   `json:"scope"`
	Labels    []string `json:"labels"`
	MintedFor int64    `json:"minted_for,omitempty"`

	RegisteredAt time.Time `json:"registered_at"`
	// OnlineAt is when its first session was opened, Sessions how many there were.
	OnlineAt    *time.Time `json:"online_at"`
	Sessions    int        `json:"sessions"`
	LastContact *time.Time `json:"last_contact"`
	// RemovedBy is "api: installation N", "its one job ended" or "offline too long". RemovedBusy is the job that it had
	// when it was removed, 0 if none.
	RemovedAt   *time.Time `json:"removed_at"`
	RemovedBy   string     `json:"removed_by,omitempty"`
	RemovedBusy int64      `json:"removed_busy,omitempty"`
	// Given lists the jobs it was given, Ran those it acquired: one at most, when all is well.
	Given []int64 `json:"given"`
	Ran   []int64 `json:"ran"`
}

func (s *Server) runnerRecordLocked(rn *runner, removedBy string) RunnerRecord {
	out := RunnerRecord{
		ID: rn.id, Name: rn.name, Scope: rn.scope.path, Labels: slices.Clone(rn.labels.names), RegisteredAt: rn.createdAt.UTC(),
		OnlineAt: moment(rn.onlineAt), Sessions: rn.sessions, LastContact: moment(rn.lastContact),
		Given: slices.Clone(rn.given), Ran: slices.Clone(rn.ran),
	}
	if rn.intended != nil {
		out.MintedFor = rn.intended.id
	}
	if removedBy == "" {
		return out
	}
	out.RemovedAt, out.RemovedBy = moment(s.now()), removedBy
	if rn.job != nil {
		out.RemovedBusy = rn.job.id
	}
	return out
}

// DeliveryRecord is a webhook as GitHub knows it, and as it was bent.
type DeliveryRecord struct {
	ID           int64     `json:"id"`
	GUID         string    `json:"guid"`
	Event        string    `json:"event"`
	Action       string    `json:"action"`
	JobID        int64     `json:"job_id,omitempty"`
	Installation int64     `json:"installation"`
	CreatedAt    time.Time `json:"created_at"`
	// DeliveredAt is null as long as it is under way, and forever when a fault made it vanish.
	DeliveredAt *time.Time  `json:"delivered_at"`
	StatusCode  int         `json:"status_code"`
	Redelivery  bool        `json:"redelivery"`
	Faults      []FaultKind `json:"faults,omitempty"`
}

// Ledger is what GitHub saw from its first moment on, for a checker that trusts no other source. It survives a restart
// with the state file; deliveries beyond Options.MaxDeliveries are forgotten.
type Ledger struct {
	Now        time.Time        `json:"now"`
	Jobs       []JobRecord      `json:"jobs"`       // in the order in which they appeared
	Runners    []RunnerRecord   `json:"runners"`    // by id
	Deliveries []DeliveryRecord `json:"deliveries"` // oldest first
}

// Ledger returns the ledger as it is now.
func (s *Server) Ledger() Ledger {
	s.mu.Lock()
	out := Ledger{Now: s.now().UTC(), Jobs: make([]JobRecord, 0, len(s.jobOrder)), Runners: make([]RunnerRecord, 0, len(s.gone)+len(s.runners))}
	for _, j := range s.jobOrder {
		out.Jobs = append(out.Jobs, JobRecord{
			JobView: j.view(), Attempt: j.attempt, Given: slices.Clone(j.given), Requeues: j.requeues,
			VanishedMidJob: j.lost, Cancelled: j.cancelling,
		})
	}
	out.Runners = append(out.Runners, s.gone...)
	for _, rn := range s.runners {
		out.Runners = append(out.Runners, s.runnerRecordLocked(rn, ""))
	}
	s.mu.Unlock()
	slices.SortFunc(out.Runners, func(a, b RunnerRecord) int { return int(a.ID - b.ID) })
	out.Deliveries = s.hooks.records()
	return out
}

func (h *hookSender) records() []DeliveryRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]DeliveryRecord, 0, len(h.list))
	for _, d := range h.list {
		out = append(out, DeliveryRecord{
			ID: d.ID, GUID: d.GUID, Event: d.Event, Action: d.Action, JobID: d.jobID, Installation: d.InstallationID,
			CreatedAt: d.CreatedAt.UTC(), DeliveredAt: moment(d.DeliveredAt), StatusCode: d.StatusCode,
			Redelivery: d.Redelivery, Faults: slices.Clone(d.Struck),
		})
	}
	return out
}

func (s *Server) adminLedger(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, s.Ledger())
	return nil
}
