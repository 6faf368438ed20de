package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

// The rows of the table, in its order.
const (
	RowLost          = "jobs lost"
	RowTwice         = "jobs run twice"
	RowKilled        = "jobs killed while they ran"
	RowBudget        = "budgets exceeded"
	RowPods          = "pods leaked"
	RowRegistrations = "registrations leaked at GitHub"
	RowClaims        = "claims left"
	RowLedger        = "jobs open in the ledger alone"
	RowSecrets       = "secrets seen"
	RowDeletions     = "deletions by others than the controller"
	RowProcesses     = "processes left"
	RowLate          = "jobs that waited too long"
)

// Rows lists them.
func Rows() []string {
	return []string{
		RowLost, RowTwice, RowKilled, RowBudget, RowPods, RowRegistrations, RowClaims, RowLedger, RowSecrets, RowDeletions, RowProcesses,
		RowLate,
	}
}

// Bounds are timeouts, however much is broken beside them.
type Bounds struct {
	// Pod is how long a runner's pod may be there after its job has ended.
	Pod time.Duration
	// Wait, if set, is how long a job may wait until it runs.
	Wait time.Duration
}

// Finding is one thing that is wrong.
type Finding struct {
	Row      string   `json:"row"`
	What     string   `json:"what"`
	Timeline []string `json:"timeline,omitempty"`
}

// Waits are how long jobs waited from being queued to being run.
type Waits struct {
	Jobs int           `json:"jobs"`
	P50  time.Duration `json:"p50"`
	P95  time.Duration `json:"p95"`
	Most time.Duration `json:"most"`
	// Bound is the longest that is allowed; 0 where there is none.
	Bound time.Duration `json:"bound,omitempty"`
	all   []time.Duration
}

// Report is the table.
type Report struct {
	Findings []Finding `json:"findings"`
	Jobs     int       `json:"jobs"`
	Deeds    int       `json:"deeds"`
	// OnPurpose are jobs that the soak itself ended: cancelled, or on a machine that it switched off.
	OnPurpose int      `json:"on_purpose"`
	Notes     []string `json:"notes,omitempty"`
	Waits     Waits    `json:"waits"`
}

// Count is the number in a row.
func (r *Report) Count(row string) int {
	n := 0
	for _, f := range r.Findings {
		if f.Row == row {
			n++
		}
	}
	return n
}

// examiner is one examination.
type examiner struct {
	*Evidence
	bounds Bounds
	report Report
	index  index
}

// Examine reads the evidence and reports. It is a pure function of the evidence, and of the files that it names.
func Examine(e *Evidence, bounds Bounds) (*Report, error) {
	e.Changes = inOrder(e.Changes)
	x := &examiner{Evidence: e, bounds: bounds, index: indexOf(e)}
	x.report.Jobs, x.report.Deeds = len(e.GitHub.Jobs), len(e.Deeds)
	for i := range e.GitHub.Jobs {
		x.job(&e.GitHub.Jobs[i])
	}
	x.runners()
	x.busyPodsDeleted()
	x.budgets()
	x.uncharged()
	x.pods()
	x.left()
	x.ledger()
	x.deletions()
	if err := x.secrets(); err != nil {
		return nil, err
	}
	x.report.Waits = x.waits()
	x.report.Waits.Bound = bounds.Wait
	x.late()
	return &x.report, nil
}

func (x *examiner) find(row string, timeline []string, format string, args ...any) {
	x.report.Findings = append(x.report.Findings, Finding{Row: row, What: fmt.Sprintf(format, args...), Timeline: timeline})
}

// job asks whether GitHub saw it end, once, and by its own runner.
func (x *examiner) job(j *Job) {
	if j.Status != "completed" {
		x.find(RowLost, x.timeline(j), "job %d (%s) of %s is still %s", j.ID, j.Name, j.Repo, j.Status)
	}
	if n := len(distinct(j.AcquiredBy)); j.Acquisitions > 1 || n > 1 {
		x.find(RowTwice, x.timeline(j), "job %d (%s) was taken %d times: %s", j.ID, j.Name, max(j.Acquisitions, n), strings.Join(j.AcquiredBy, ", "))
	}
	if j.Status != "completed" || j.Conclusion == "success" {
		return
	}
	switch {
	case x.index.cancelled[j.ID] && j.Conclusion == "cancelled":
		x.report.OnPurpose++
	case j.Acquisitions == 0:
		x.find(RowLost, x.timeline(j), "job %d (%s) of %s ended as %s and never ran: %s", j.ID, j.Name, j.Repo, j.Conclusion, j.Reason)
	case x.switchedOff(j):
		x.report.OnPurpose++
	default:
		x.find(RowKilled, x.timeline(j), "job %d (%s) of %s ended as %s on %s: %s", j.ID, j.Name, j.Repo, j.Conclusion, j.RunnerName, j.Reason)
	}
}

// switchedOff reports whether the soak switched off the machine on which the job ran.
func (x *examiner) switchedOff(j *Job) bool {
	uid := x.index.podOf[j.RunnerName]
	lives := x.index.lives[uid]
	if uid == "" || lives == nil || lives.ended != nil {
		return false
	}
	// It began and its end was not observed. Its machine was switched on again since, and not on its own.
	on := slices.IndexFunc(x.index.switchedOn[lives.started.Machine], func(at time.Time) bool { return at.After(lives.started.At) })
	if on < 0 {
		return false
	}
	at := x.index.switchedOn[lives.started.Machine][on]
	return slices.ContainsFunc(x.Deeds, func(d Deed) bool {
		const slack = 30 * time.Second // from the deed to the machine's first words
		return d.Machine == lives.started.Machine && !d.At.After(at) && at.Sub(d.At) < d.Until.Sub(d.At)+slack
	})
}

// runners looks for runners that ran more than one job, and for those that were stopped while they had one.
func (x *examiner) runners() {
	for _, r := range x.GitHub.Runners {
		if len(r.Ran) > 1 {
			x.find(RowTwice, x.podTimeline(x.index.nameOf[x.index.podOf[r.Name]]), "runner %s ran the jobs %v: a runner has one shot", r.Name, r.Ran)
		}
	}
	for i := range x.GitHub.Jobs {
		j := &x.GitHub.Jobs[i]
		lives := x.index.lives[x.index.podOf[j.RunnerName]]
		if lives == nil || lives.ended == nil || !lives.ended.Killed || j.StartedAt == nil || x.index.cancelled[j.ID] {
			continue
		}
		if during(lives.ended.At, j) && j.Conclusion == "success" { // any other conclusion was counted with the job
			x.find(RowKilled, x.timeline(j), "the runner of job %d (%s) was killed at %s while it ran", j.ID, j.Name, clock(lives.ended.At))
		}
	}
}

// during reports whether a moment lies within the job's run.
func during(at time.Time, j *Job) bool {
	return j.StartedAt != nil && at.After(*j.StartedAt) && (j.CompletedAt == nil || at.Before(*j.CompletedAt))
}

// busyPodsDeleted finds deletions that the API server accepted while the pod's runner had a job according to GitHub. A pod whose machine is
// gone has no job, whatever GitHub shows for a while.
func (x *examiner) busyPodsDeleted() {
	for i := range x.GitHub.Jobs {
		j := &x.GitHub.Jobs[i]
		uid := x.index.podOf[j.RunnerName]
		if uid == "" || j.StartedAt == nil || x.switchedOff(j) || x.index.cancelled[j.ID] {
			continue
		}
		lives := x.index.lives[uid]
		for _, deletion := range x.index.deletions[x.index.nameOf[uid]] {
			if x.index.stopped[x.index.nameOf[uid]] && deletion.User.Username != controllerUser {
				continue // with the whole grace period, in which the job runs to its end: that it does shows elsewhere
			}
			// A runner that had exited may be removed before all messages of GitHub have arrived.
			if during(deletion.At, j) && (lives == nil || lives.ended == nil || deletion.At.Before(lives.ended.At)) {
				x.find(RowKilled, x.timeline(j), "the pod of job %d (%s) was deleted at %s while the job ran: %s", j.ID, j.Name, clock(deletion.At), deletion)
			}
		}
	}
}

// pods asks how long pods were there after their job, and which are there still.
func (x *examiner) pods() {
	for i := range x.GitHub.Jobs {
		j := &x.GitHub.Jobs[i]
		uid := x.index.podOf[j.RunnerName]
		if uid == "" || j.CompletedAt == nil {
			continue
		}
		if late := x.elapsed(*j.CompletedAt, x.wentAt(uid)); late > x.bounds.Pod && x.bounds.Pod > 0 {
			x.find(RowPods, x.timeline(j), "pod %s was still there %s after its job %d had ended (bound: %s)",
				x.index.nameOf[uid], late.Round(time.Second), j.ID, x.bounds.Pod)
		}
	}
	for _, left := range x.Final.Pods {
		x.find(RowPods, x.podTimeline(left.Name), "pod %s (%s) is left: %s", left.Name, left.UID, left.Why)
	}
	for _, left := range x.Final.ServiceAccounts {
		x.find(RowPods, x.podTimeline(left.Name), "ServiceAccount %s is left: %s", left.Name, left.Why)
	}
	for _, left := range x.Final.Pools {
		x.find(RowPods, nil, "RunnerPool %s is left: %s", left.Name, left.Why)
	}
}

// left is what must be gone at the end: registrations, live claims, processes.
func (x *examiner) left() {
	for _, runner := range x.GitHub.Runners {
		if runner.RemovedAt == nil {
			x.find(RowRegistrations, x.podTimeline(x.index.nameOf[x.index.podOf[runner.Name]]), "runner %s, registered at %s, is still there (was online: %t, ran: %v)",
				runner.Name, clock(runner.RegisteredAt), runner.OnlineAt != nil, runner.Ran)
		}
	}
	for _, row := range x.Rows["runner_claims"] {
		var c Claim
		if json.Unmarshal(row, &c) == nil && c.Live() {
			x.find(RowClaims, x.podTimeline(c.PodName), "the claim of pod %s is still %s (runner %s)", c.PodName, c.State, c.RunnerName)
		}
	}
	for _, row := range x.Rows["job_lanes"] {
		var lane struct {
			Label   string `json:"label_key"`
			Account int64  `json:"account_id"`
			Running int64  `json:"running"`
		}
		if json.Unmarshal(row, &lane) == nil && lane.Running != 0 {
			x.find(RowClaims, nil, "the lane %s of account %d counts %d running jobs, and none runs", lane.Label, lane.Account, lane.Running)
		}
	}
	for _, process := range x.Final.Processes {
		x.find(RowProcesses, nil, "process %s", process)
	}
}

// ledger finds jobs that GitHub knows to be over and our own ledger does not.
func (x *examiner) ledger() {
	over := map[int64]*Job{}
	for i := range x.GitHub.Jobs {
		if j := &x.GitHub.Jobs[i]; j.Status == "completed" {
			over[j.ID] = j
		}
	}
	for _, row := range x.Rows["workflow_jobs"] {
		var job struct {
			ID    int64  `json:"id"`
			State string `json:"state"`
		}
		if json.Unmarshal(row, &job) != nil || slices.Contains([]string{"completed", "cancelled", "stale"}, job.State) {
			continue
		}
		if j := over[job.ID]; j != nil {
			x.find(RowLedger, x.timeline(j), "job %d (%s) is %s in the ledger; GitHub said %s", j.ID, j.Name, job.State, j.Conclusion)
		}
	}
}

// late finds jobs that waited longer than they may, where there is a bound.
func (x *examiner) late() {
	for i := range x.GitHub.Jobs {
		j := &x.GitHub.Jobs[i]
		if x.bounds.Wait == 0 || j.QueuedAt == nil || j.StartedAt == nil || x.index.cancelled[j.ID] {
			continue
		}
		if wait := x.elapsed(*j.QueuedAt, *j.StartedAt); wait > x.bounds.Wait {
			x.find(RowLate, x.timeline(j), "job %d (%s) waited %s (bound: %s)", j.ID, j.Name, wait.Round(time.Millisecond), x.bounds.Wait)
		}
	}
}

func (x *examiner) waits() Waits {
	var w Waits
	for _, j := range x.GitHub.Jobs {
		if j.QueuedAt != nil && j.StartedAt != nil {
			w.all = append(w.all, x.elapsed(*j.QueuedAt, *j.StartedAt))
		}
	}
	slices.Sort(w.all)
	w.Jobs = len(w.all)
	w.P50, w.P95, w.Most = stats.Quantile(w.all, 0.50), stats.Quantile(w.all, 0.95), stats.Quantile(w.all, 1)
	return w
}

func distinct(names []string) []string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }
