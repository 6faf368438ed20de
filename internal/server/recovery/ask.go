package recovery

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// found is what GitHub says of one job.
type found struct {
	job  github.WorkflowJob
	gone bool // 404, beside a repository that can be read
	err  error
}

// questions are what one pass asks of GitHub: of each installation so much, and of a job once.
type questions struct {
	r *Recovery

	mu     sync.Mutex
	spent  map[int64]int
	silent map[int64]int // answers in a row that said nothing
	jobs   map[int64]*found
}

// tooSilent is how often in a row an installation may say nothing before the pass leaves it alone: what stands behind it
// must not wait for its timeouts.
const tooSilent = 3

func (r *Recovery) newQuestions() *questions {
	return &questions{r: r, spent: map[int64]int{}, silent: map[int64]int{}, jobs: map[int64]*found{}}
}

var (
	errEnough         = errors.New("enough was asked of GitHub for this pass")
	errSilent         = errors.New("GitHub says nothing about this installation just now")
	errNoInstallation = errors.New("the account has no installation any more")
)

// may takes one request of the installation's request quota.
func (q *questions) may(installation int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case installation == 0:
		return errNoInstallation
	case q.silent[installation] >= tooSilent:
		return errSilent
	case q.spent[installation] >= q.r.opt.Requests:
		return errEnough
	}
	q.spent[installation]++
	return nil
}

// noteResponse records whether the installation responds. A repository or runner that may not be read is a response, and no reason to skip
// the others (RECV-5).
func (q *questions) noteResponse(installation int64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var limited *fleet.RateLimitedError
	if err == nil || fleet.Definite(err) && !errors.As(err, &limited) {
		q.silent[installation] = 0
	} else {
		q.silent[installation]++
	}
}

// ask fills in what GitHub says about the subject. The only error is too many questions: then nothing is known, and the subject must be
// left alone.
func (q *questions) ask(ctx context.Context, s *subject, e Evidence) error {
	var err error
	if s.job == nil {
		if s.runner, err = q.runner(ctx, s, e); err != nil {
			return err
		}
		if s.runner == RunnerUnreadable && e.Live() { // its job decides nothing then
			if e.Job == Bound || e.Job == Runs {
				s.jobSays = JobUnreadable
			}
			return nil
		}
	}
	if e.Job != Bound && e.Job != Runs {
		return nil
	}
	s.jobSays, s.jobFound, err = q.job(ctx, s)
	return err
}

// runner asks about each registration of the pod that is not known to be gone; without a claim, it reads GitHub's whole
// lists.
func (q *questions) runner(ctx context.Context, s *subject, e Evidence) (RunnerSays, error) {
	if !e.Live() && e.Pod != Terminal && e.Pod != Gone {
		return q.listed(ctx, s)
	}
	account := s.account
	if s.row != nil {
		account = s.row.Account
	}
	registrations, err := q.r.opt.Ledger.Registrations(ctx, s.uid, math.MaxInt64)
	if err != nil {
		return RunnerUnreadable, err
	}
	says := RunnerAbsent
	for _, registration := range registrations {
		one, err := q.registration(ctx, account, registration)
		if err != nil {
			return RunnerUnreadable, err
		}
		says = max(says, one) // the liveliest counts, and doubt most of all
	}
	return says, nil
}

func (q *questions) registration(ctx context.Context, account dispatch.Account, r dispatch.Registration) (RunnerSays, error) {
	if err := q.may(account.InstallationID); err != nil {
		return unlessEnough(RunnerUnreadable, err)
	}
	one, err := q.r.opt.GitHub.FindRunner(ctx, account.InstallationID, r.Scope, r.Name)
	q.noteResponse(account.InstallationID, err)
	switch {
	case errors.Is(err, fleet.ErrNotFound):
		return RunnerAbsent, nil // EXCL-6: the list was readable
	case err != nil:
		q.r.opt.Log.WarnContext(ctx, "asking GitHub about a runner", "runner", r.Name, "error", err)
		return RunnerUnreadable, nil
	default:
		return runnerSays(one), nil
	}
}

// unlessEnough keeps apart what GitHub does not say from what it was not asked.
func unlessEnough[T any](doubt T, err error) (T, error) {
	if errors.Is(err, errEnough) {
		return doubt, err
	}
	return doubt, nil
}

func runnerSays(one fleet.Registration) RunnerSays {
	switch {
	case one.Busy:
		return RunnerBusy
	case one.Online:
		return RunnerIdle
	default:
		return RunnerOffline
	}
}

// listed searches GitHub's lists for the pod. They may be a little old: the action reads again.
func (q *questions) listed(ctx context.Context, s *subject) (RunnerSays, error) {
	if q.r.opt.Roster == nil {
		return RunnerUnreadable, nil
	}
	seen, err := q.r.opt.Roster.Look(ctx, []roster.Query{{UID: s.uid, AccountID: ownerOf(s), OwnerLabel: s.pod.OwnerLabel}})
	if err != nil {
		q.r.opt.Log.WarnContext(ctx, "looking for a pod in GitHub's lists of runners", "pod", s.pod.Name, "error", err)
		return RunnerUnreadable, nil
	}
	sighting := seen[s.uid]
	says := RunnerNotAsked
	for _, one := range sighting.Found {
		says = max(says, runnerSays(one.Registration))
	}
	switch {
	case says == RunnerBusy:
		return RunnerBusy, nil
	case sighting.Absent:
		return RunnerAbsent, nil
	case says == RunnerNotAsked || sighting.Doubt != "":
		q.r.opt.Log.InfoContext(ctx, "GitHub's lists prove nothing about a pod", "pod", s.pod.Name, "doubt", sighting.Doubt)
		return RunnerUnreadable, nil
	default:
		return says, nil
	}
}

// ownerOf is the id of the account that the pod's label names; zero if there is none, or neither its row nor the pod says.
func ownerOf(s *subject) int64 {
	if s.pod.OwnerLabel == "" || s.row == nil || s.row.Account.ID == 0 {
		return s.pod.OwnerID
	}
	return s.row.Account.ID
}

// job asks about a job, once in a pass.
func (q *questions) job(ctx context.Context, s *subject) (JobSays, *found, error) {
	id, repository, account := jobOf(s)
	q.mu.Lock()
	known := q.jobs[id]
	q.mu.Unlock()
	if known == nil {
		known = &found{}
		if err := q.may(account.InstallationID); err != nil {
			_, err = unlessEnough(JobUnreadable, err)
			return JobUnreadable, nil, err
		}
		known.job, known.err = q.r.opt.GitHub.Job(ctx, account.InstallationID, repository, id)
		q.noteResponse(account.InstallationID, known.err)
		if errors.Is(known.err, fleet.ErrNotFound) && q.may(account.InstallationID) == nil {
			// 404 counts beside a control read alone (EXCL-6).
			if control := q.r.opt.GitHub.ReadRuns(ctx, account.InstallationID, repository); control == nil {
				known.gone, known.err = true, nil
			} else {
				q.noteResponse(account.InstallationID, control)
			}
		}
		if known.err != nil {
			q.r.opt.Log.WarnContext(ctx, "asking GitHub about a job", "job", id, "error", known.err)
		}
		q.mu.Lock()
		q.jobs[id] = known
		q.mu.Unlock()
	}
	return jobSays(known, s.uid), known, nil
}

func jobOf(s *subject) (id int64, repository fleet.Repository, account dispatch.Account) {
	if s.job != nil {
		return s.job.ID, s.job.Repository, s.job.Account
	}
	return s.row.JobID, fleet.Repository{Name: s.row.Repository, ID: s.row.RepositoryID}, s.row.Account
}

func jobSays(f *found, podUID string) JobSays {
	switch {
	case f.gone:
		return JobGone
	case f.err != nil:
		return JobUnreadable
	}
	switch f.job.Status {
	case github.JobQueued, github.JobWaiting, "pending", "requested":
		return JobQueued
	case github.JobCompleted:
		return JobCompleted
	case github.JobInProgress:
		if uid, ours := runnerpod.PodUID(f.job.RunnerName); ours && uid == podUID {
			return JobHere
		}
		return JobElsewhere
	default:
		return JobUnreadable
	}
}
