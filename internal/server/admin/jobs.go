package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/why"
)

// JobStore reads jobs.
type JobStore interface {
	// Jobs returns a page, newest first, with the ledger's states. ErrNotFound and *ConflictError are about the account.
	Jobs(ctx context.Context, q JobQuery) ([]StoredJob, error)
	// SearchJobs is Jobs for a query that Searches. It reads a bounded number of jobs: next is where the next page begins (0: nowhere), also after a page
	// that is not full.
	SearchJobs(ctx context.Context, q JobQuery) (jobs []StoredJob, next int64, err error)
	// Conclusions counts the conclusions of the newest jobs that have completed since then, so many at most.
	Conclusions(ctx context.Context, since time.Time, most int) (map[string]int64, error)
	// Job returns one; ErrNotFound.
	Job(ctx context.Context, id int64) (StoredJob, error)
	// JobEvidence reads, as of one moment, what the ledger knows of a job and of what may be in its way.
	JobEvidence(ctx context.Context, id int64) (JobEvidence, error)
}

// StoredJob is a job as the ledger has it, with the ledger's states, and its place in the queue.
type StoredJob struct {
	adminapi.Job
	Lane  dispatch.LaneRef
	Place dispatch.JobAge // in its lane
}

// JobQuery asks for a page of jobs.
type JobQuery struct {
	Account     string   // login or "@id"; empty: all
	Repository  string   // owner/name, or a part of that without a slash; empty: all
	Name        string   // a part of the job's name; empty: all
	States      []string // the ledger's; empty: all
	Conclusions []string // GitHub's; empty: all
	Ended       bool     // completed jobs, too
	Before      int64    // only jobs with a lower id; 0: the newest
	Most        int
}

// Searches says whether the query asks for what no index has.
func (q JobQuery) Searches() bool {
	return q.Name != "" || len(q.Conclusions) > 0 || q.Repository != "" && !strings.Contains(q.Repository, "/")
}

// JobEvidence is what the ledger knows of one job.
type JobEvidence struct {
	Job          *StoredJob // nil: no such row
	Ended        bool       // without a row: the ledger remembers that it ended
	Account      adminapi.Account
	Claim        fleet.ClaimState         // of the live claim that was made for it, if there is one
	Older        int64                    // queued jobs of its account and labels that go before it
	OfRepository map[fleet.Platform]int64 // running jobs of its repository
	Refusals     []dispatch.Refusal       // of its account, its repository or itself, the widest first
}

// Fleet is what the server knows beside the ledger, at this moment and on this replica.
type Fleet interface {
	Pools() []dispatch.Pool
	// PoolStatus is what a pool says of itself.
	PoolStatus(ref dispatch.PoolRef) (why.Pool, bool)
	// Backoff is until when no runner is registered for an account (zero: nothing keeps that), and whether that is for a limit.
	Backoff(account dispatch.Account) (until time.Time, limited bool)
	// PoolRefused says how GitHub refuses the pool's runners at the account, and when they are tried again.
	PoolRefused(pool dispatch.PoolRef, account int64) (refusal dispatch.PoolRefusal, ok bool)
	// Frozen is why no job is handed out at all.
	Frozen() (reason string, frozen bool)
	// Outside says which runners outside of RunnerPools have those labels.
	Outside(labels []string) fleet.Outside
	// Runner finds a runner's pod by its name.
	Runner(namespace, name string) (dispatch.Pod, bool)
	// ClaimChanged says that the ledger says something else of a pod now.
	ClaimChanged(podUID string)

	PoolWatch
	HostWatch
}

// jobQuery reads what a list of jobs is asked for with, and what to keep of the jobs that the store finds for it; nil: all.
func jobQuery(query url.Values) (q JobQuery, keep keepJob, err error) {
	q = JobQuery{
		Account: query.Get("account"), Repository: query.Get("repository"), Name: query.Get("name"), Conclusions: query["conclusion"],
		Ended: query.Get("ended") == "true",
	}
	if q.Most, err = pageSize(query.Get("limit")); err != nil {
		return q, nil, err
	}
	if q.States, keep, err = selectJobs(query["state"]); err != nil {
		return q, nil, err
	}
	for _, state := range q.States {
		q.Ended = q.Ended || fleet.JobState(state).Terminal()
	}
	for _, conclusion := range q.Conclusions {
		if !slices.Contains(adminapi.Conclusions(), conclusion) {
			return q, nil, &InvalidError{"conclusion must be one of " + strings.Join(adminapi.Conclusions(), ", ")}
		}
		q.Ended = true
	}
	if text := query.Get("before"); text != "" {
		if q.Before, err = strconv.ParseInt(text, 10, 64); err != nil || q.Before < 1 {
			return q, nil, &InvalidError{"before must be the value of next of the previous page"}
		}
	}
	return q, keep, nil
}

func (a *API) listJobs(w http.ResponseWriter, r request) error {
	q, keep, err := jobQuery(r.URL.Query())
	if err != nil {
		return err
	}
	jobs, next, err := pageOfJobs(r.Context(), a.opt.Store, q, a.queue(r.Context()).shown, keep)
	if err != nil {
		return err
	}
	for i := range jobs {
		jobs[i] = a.linked(jobs[i])
	}
	write(w, http.StatusOK, adminapi.JobList{Jobs: jobs, Next: next})
	return nil
}

// countConclusions is a number for a page that is read every few seconds: what it reads is bounded.
func (a *API) countConclusions(w http.ResponseWriter, r request) error {
	since := a.opt.Now().Add(-time.Hour).UTC()
	counts, err := a.opt.Store.Conclusions(r.Context(), since, adminapi.MaxCounted)
	if err != nil {
		return err
	}
	answer := adminapi.ConclusionCounts{Since: since, Counts: counts}
	var jobs int64
	for conclusion, n := range counts {
		jobs += n
		if adminapi.Failed(conclusion) {
			answer.Failed += n
		}
	}
	answer.More = jobs >= adminapi.MaxCounted
	write(w, http.StatusOK, answer)
	return nil
}

// linked adds where the job and its run are at GitHub.
func (a *API) linked(job adminapi.Job) adminapi.Job {
	owner, name, ok := strings.Cut(job.Repository, "/")
	if a.opt.GitHub == "" || !ok {
		return job
	}
	runs := a.opt.GitHub + "/" + url.PathEscape(owner) + "/" + url.PathEscape(name) + "/actions/runs/" + strconv.FormatInt(job.RunID, 10)
	job.URL, job.RunURL = runs+"/job/"+strconv.FormatInt(job.ID, 10), runs
	if job.RunAttempt > 1 {
		job.RunURL += "/attempts/" + strconv.FormatInt(job.RunAttempt, 10)
	}
	return job
}

func jobID(r request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("job"), 10, 64)
	if err != nil || id < 1 {
		return 0, &InvalidError{"invalid job ID: expected GitHub's numeric job ID, as listed by `bullpen jobs`"}
	}
	return id, nil
}

func (a *API) getJob(w http.ResponseWriter, r request) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	job, err := a.opt.Store.Job(r.Context(), id)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, a.whole(job, a.queue(r.Context()).shown(job)))
	return nil
}

// whole adds to a job what one that is asked for alone is shown with. Its timeline depends on the ledger's state.
func (a *API) whole(stored StoredJob, job adminapi.Job) adminapi.Job {
	timeline := TimelineOf(stored.Job)
	if timeline.Open != nil && (job.State == adminapi.JobNoPool || job.State == adminapi.JobElsewhere) {
		timeline.Open.Name = string(fleet.PhaseNoPool)
	}
	job.Timeline = &timeline
	job.TraceID, job.TraceURL = a.opt.Trace(job.ID)
	return a.linked(job)
}

// TimelineOf says what became of a job, and where the time went.
func TimelineOf(job adminapi.Job) adminapi.Timeline {
	times := fleet.JobTimes{
		Queued: job.QueuedAt, Received: timeOf(job.ReceivedAt), Approved: timeOf(job.ApprovedAt), Claimed: timeOf(job.ClaimedAt),
		Minted: timeOf(job.RegisteredAt), Acknowledged: timeOf(job.Acknowledged), Executing: timeOf(job.StartedAt), Ended: timeOf(job.CompletedAt),
	}
	timeline := adminapi.Timeline{Steps: []adminapi.TimelineStep{}, Split: []adminapi.TimelinePhase{}}
	for _, s := range times.Steps() {
		timeline.Steps = append(timeline.Steps, adminapi.TimelineStep{Name: string(s.Step), At: s.At.UTC(), WholeSeconds: s.Whole})
	}
	for _, s := range times.Split() {
		timeline.Split = append(timeline.Split, adminapi.TimelinePhase{Name: string(s.Phase), Seconds: s.Time.Seconds(), WholeSeconds: s.Whole})
	}
	if phase, since, ok := times.Open(fleet.JobState(job.State)); ok {
		timeline.Open = &adminapi.TimelineOpen{Name: string(phase), Since: since.UTC()}
	}
	return timeline
}

// whyJob answers for unknown jobs, too.
func (a *API) whyJob(w http.ResponseWriter, r request) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	known, err := a.opt.Store.JobEvidence(r.Context(), id)
	if err != nil {
		return err
	}
	answer := adminapi.Why{JobID: id}
	if known.Job != nil {
		job := a.linked(a.queue(r.Context()).shown(*known.Job))
		answer.Job = &job
	}
	for _, reason := range why.Explain(a.evidence(id, known)) {
		out := adminapi.Reason{Code: string(reason.Code), Sentence: reason.Sentence, Remedy: reason.Remedy}
		if !reason.Until.IsZero() {
			until := reason.Until.UTC()
			out.Until = &until
		}
		answer.Reasons = append(answer.Reasons, out)
	}
	write(w, http.StatusOK, answer)
	return nil
}

// evidence puts together what the ledger and this replica know.
func (a *API) evidence(id int64, known JobEvidence) why.Evidence {
	e := why.Evidence{Now: a.opt.Now(), Job: why.Job{ID: id}, Tombstone: known.Ended}
	if known.Job == nil {
		return e
	}
	job := known.Job.Job
	e.Job = why.Job{
		ID: id, State: fleet.JobState(job.State), BlockedBy: job.BlockedBy, Repository: job.Repository, Labels: job.Labels, Conclusion: job.Conclusion,
		RunnerName: job.Runner(), QueuedAt: job.QueuedAt, StartedAt: timeOf(job.StartedAt), EndedAt: timeOf(job.CompletedAt), LostAt: timeOf(job.RunnerLostAt),
	}
	if job.ExitCode != nil {
		e.Job.RunnerExit = adminapi.ExitCode(*job.ExitCode)
	}
	account := known.Account
	e.Account = why.Account{
		Login: account.Login, Installed: account.InstallationID != 0, SuspendedByGitHub: account.SuspendedByGitHub,
		SuspendedByAdministrator: account.SuspendedByAdministrator, SuspensionReason: account.SuspensionReason,
	}
	e.Ahead, e.Pools, e.Outside = known.Older, a.opt.Fleet.Pools(), a.opt.Fleet.Outside(job.Labels)
	e.Mint.Until, e.Mint.Limited = a.opt.Fleet.Backoff(dispatch.Account{ID: account.ID, Login: account.Login, InstallationID: account.InstallationID})
	e.Frozen, _ = a.opt.Fleet.Frozen()
	e.Refusals = known.Refusals
	if known.Claim.Live() {
		e.Claim = &why.Claim{
			Pod: job.Pod, Pool: job.Pool, State: known.Claim,
			ClaimedAt: timeOf(job.ClaimedAt), MintedAt: timeOf(job.RegisteredAt), AcknowledgedAt: timeOf(job.Acknowledged),
		}
	}
	if ref, served := why.Route(e.Pools, job.Labels); served {
		e.Pool, _ = a.opt.Fleet.PoolStatus(ref)
		if refusal, refused := a.opt.Fleet.PoolRefused(ref, account.ID); refused {
			e.Mint = why.Mint{Until: refusal.Until, Group: refusal.Group, Pool: true, Status: refusal.Status, Why: refusal.Message}
		}
		e.Budget = budgetOf(account, e.Pool.Platform)
		e.Budget.RepositoryUsage = known.OfRepository[e.Pool.Platform]
	}
	return e
}

func budgetOf(account adminapi.Account, platform fleet.Platform) why.Budget {
	for _, b := range account.Budgets {
		if b.Platform == string(platform) {
			return why.Budget{
				Limits: fleet.Limits{Jobs: b.Limits.Jobs, MilliCPU: b.Limits.MilliCPU, MemoryMB: b.Limits.MemoryMB, JobsPerRepository: b.Limits.JobsPerRepository},
				Usage:  fleet.Usage{Jobs: b.Usage.Jobs, MilliCPU: b.Usage.MilliCPU, MemoryMB: b.Usage.MemoryMB},
			}
		}
	}
	return why.Budget{}
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
