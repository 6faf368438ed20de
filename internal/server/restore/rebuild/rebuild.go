package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// Ledger is what is written to.
type Ledger interface {
	// Rebuild gives a pod whose registrations GitHub shows its claim back, and returns the state that it has then. It writes
	// nothing once the turn is over, and says so with epoch.ErrTurnOver.
	Rebuild(ctx context.Context, turn epoch.Turn, f dispatch.FoundRunner, now time.Time) (fleet.ClaimState, error)
	// RecordFound records what was read of a job at GitHub, as if a webhook had reported it; under the same
	// condition.
	RecordFound(ctx context.Context, turn epoch.Turn, ev dispatch.JobEvent, now time.Time) (dispatch.Recorded, error)
	// Claim reads a pod's row.
	Claim(ctx context.Context, podUID string) (dispatch.Claim, error)
	// RecentRepositories lists where the account had jobs, newest first.
	RecentRepositories(ctx context.Context, accountID int64, most int) ([]string, error)
}

// Forge finds jobs at GitHub, by the errors of package fleet.
type Forge interface {
	Runs(ctx context.Context, installationID int64, repository, status string, page int) (list []github.Run, next int, err error)
	RunJobs(ctx context.Context, installationID int64, repository string, runID int64, page int) (list []github.WorkflowJob, next int, err error)
	Repositories(ctx context.Context, installationID int64, most int) (list []fleet.Repository, whole bool, err error)
}

// Options of New; all but Log and Now are required.
type Options struct {
	// Pods is an uncached list of the runner pods.
	Pods   func(ctx context.Context) ([]dispatch.Pod, error)
	Pool   func(ref dispatch.PoolRef) (dispatch.Pool, bool)
	Lists  dispatch.Roster
	Ledger Ledger
	Forge  Forge
	Log    *slog.Logger
	Now    func() time.Time
}

// Rebuilder gathers and writes. Run may be repeated.
type Rebuilder struct{ opt Options }

// New checks the options.
func New(opt Options) (*Rebuilder, error) {
	if opt.Pods == nil || opt.Pool == nil || opt.Lists == nil || opt.Ledger == nil || opt.Forge == nil {
		return nil, errors.New("rebuilding claims needs pods, pools, GitHub's lists, a ledger and GitHub")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Rebuilder{opt}, nil
}

// Run rebuilds once, as long as the turn lasts. doubts is how many pods that show work are doubtful; an error means that
// nothing is proven: the pods, or the accounts, could not be listed, or the turn was over before the end
// (epoch.ErrTurnOver).
func (r *Rebuilder) Run(ctx context.Context, turn epoch.Turn) (doubts int, err error) {
	since := r.opt.Now()
	pods, err := r.opt.Pods(ctx)
	if err != nil {
		return 0, fmt.Errorf("listing pods: %w", err)
	}
	queries := make([]roster.Query, len(pods))
	for i, pod := range pods {
		queries[i] = roster.Query{UID: pod.UID, AccountID: pod.OwnerID, OwnerLabel: pod.OwnerLabel, Since: since}
	}
	seen, err := r.look(ctx, queries)
	if err != nil {
		return 0, err
	}
	jobs := newHunt(turn)
	rebuilt := 0
	for _, pod := range pods {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		s := seen[pod.UID]
		if s.Doubt != "" && len(s.Found) == 0 && (pod.OwnerLabel != "" || pod.PollerEnded) {
			doubts++
			r.opt.Log.WarnContext(ctx, "it is unknown yet whether a pod is busy", "pod", pod.Name, "because", s.Doubt)
		}
		pool, _ := r.opt.Pool(pod.Pool)
		found, ok := dispatch.FoundAt(pod, pool, s)
		if !ok {
			continue
		}
		if err := r.one(ctx, found, jobs); errors.Is(err, epoch.ErrTurnOver) {
			return 0, err // CLAIM-17: the reading is late, and so would be the rest
		} else if err != nil {
			doubts++
			r.opt.Log.WarnContext(ctx, "rebuilding a claim", "pod", pod.Name, "error", err)
			continue
		}
		rebuilt++
	}
	bound, err := r.findJobs(ctx, jobs)
	if err != nil {
		return 0, err
	}
	r.opt.Log.InfoContext(ctx, "rebuilt claims from pods and GitHub", "pods", len(pods), "registered", rebuilt,
		"jobs_found", bound, "jobs_unknown", jobs.left(), "doubts", doubts)
	return doubts, nil
}

// look leaves half of the time to what is done with the answer. Lists that cannot be read within the other half are doubts,
// which end a hold in time (CLAIM-17). A rebuilding that ran out of time would prove nothing, however often it is retried.
func (r *Rebuilder) look(ctx context.Context, queries []roster.Query) (map[string]roster.Sighting, error) {
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	return r.opt.Lists.Look(ctx, queries)
}

// one rebuilds a claim, and records whose job must be searched for.
func (r *Rebuilder) one(ctx context.Context, found dispatch.FoundRunner, jobs *hunt) error {
	state, err := r.opt.Ledger.Rebuild(ctx, jobs.turn, found, r.opt.Now())
	if err != nil {
		return err
	}
	runner := found.Runner()
	if !runner.Busy {
		return nil
	}
	if state == fleet.ClaimExecuting {
		claim, err := r.opt.Ledger.Claim(ctx, found.Pod.UID)
		if err != nil {
			return err
		}
		if claim.JobID != 0 && claim.RunnerName == runner.Name {
			return nil
		}
	}
	jobs.want(found.Account, runner)
	return nil
}
