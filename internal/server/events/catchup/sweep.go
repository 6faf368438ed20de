package catchup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

const (
	// sweepAgain times Options.Every is how long a repository is left alone once it was swept.
	sweepAgain = 5
	// sweepRefused times Options.Every is how much longer one is left alone that GitHub does not show: asking is not free.
	sweepRefused = 60
	// seenWithin: repositories of which no job was heard for longer are not swept.
	seenWithin = 14 * 24 * time.Hour
)

// sweptStatuses are those of runs whose jobs may be queued.
var sweptStatuses = []string{github.RunQueued, github.RunInProgress}

// Sweep reads GitHub's queue for jobs without a delivery, of each account in turn, and of the repository first that was swept longest ago. It
// is the last resort: a webhook that is not even in the list of deliveries is found here.
func (c *CatchUp) Sweep(ctx context.Context) error {
	began := c.opt.Now()
	next, err := backlog[Repository]{
		ledger: c.opt.Ledger, account: func(r Repository) int64 { return r.Account.ID }, do: c.sweepRepository,
		due: func(ctx context.Context, accounts []int64) ([]Repository, error) {
			list, err := c.opt.Ledger.RepositoriesToSweep(ctx, began.Add(-sweepAgain*c.opt.Every), began.Add(-seenWithin), accounts, itemsAtOnce)
			if err != nil {
				return nil, fmt.Errorf("reading which repository to sweep: %w", err)
			}
			return list, nil
		},
	}.workOff(ctx, c.swept.Load())
	c.swept.Store(next)
	return err
}

// ended drops an error that only says that the pass has used up its time.
func ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// sweepRepository reads the runs of a repository from where the last sweep stopped. One that cannot be read moves to the end of the line
// like one that was.
func (c *CatchUp) sweepRepository(ctx context.Context, t turn, r Repository) error {
	var leave error
	at := c.opt.Now()
	from := max(0, slices.Index(sweptStatuses, r.Resume.Status))
	for _, status := range sweptStatuses[from:] {
		resume := Resume{Status: status}
		if status == r.Resume.Status {
			resume = r.Resume
		}
		reached, err := c.sweepStatus(ctx, t, r, resume)
		switch {
		case err == nil:
			continue
		case errors.Is(err, errStore):
			return err
		case errors.Is(err, errTurn) && ctx.Err() == nil:
			return errors.Join(errTurn, c.sweptPartly(ctx, r, reached))
		case errors.Is(err, errLeave), ctx.Err() != nil:
			return errors.Join(errLeave, c.sweptPartly(ctx, r, reached))
		}
		c.opt.Log.WarnContext(ctx, "a repository's queue cannot be read", "repository", r.Name, "account", r.Account.Login, "error", err)
		leave = unanswered(err)
		if fleet.Definite(err) {
			at = at.Add(sweepRefused * c.opt.Every)
		}
		break
	}
	if err := c.opt.Ledger.Swept(ctx, r.Name, at); err != nil {
		return fmt.Errorf("%w: noting a sweep: %w", errStore, err)
	}
	return leave
}

// sweptPartly notes where to continue, also when the time of this run is up: otherwise a large repository would start
// over forever.
func (c *CatchUp) sweptPartly(ctx context.Context, r Repository, reached Resume) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.opt.Ledger.SweptPartly(ctx, r.Name, reached); err != nil {
		return fmt.Errorf("%w: noting a sweep: %w", errStore, err)
	}
	return nil
}

// sweepStatus goes through the runs of one status, newest first, beyond where the last sweep stopped, and returns how far
// it came: at least one run further, or to the end.
func (c *CatchUp) sweepStatus(ctx context.Context, t turn, r Repository, at Resume) (Resume, error) {
	for page := 1; page != 0; {
		ask, err := c.mayAskAgain(ctx, r.Account.InstallationID, PassQueueSwept)
		if err != nil {
			return at, err
		}
		runs, next, err := c.opt.Forge.Runs(ask, r.Account.InstallationID, r.Name, at.Status, page)
		if err != nil {
			return at, errors.Join(err, leaveIfLimited(err))
		}
		for _, run := range runs {
			if at.Run != 0 && run.ID >= at.Run || c.opt.Now().Sub(run.CreatedAt) < c.opt.Every {
				continue
			}
			if err := c.sweepRun(ctx, r, run); err != nil {
				return at, err
			}
			at.Run = run.ID
			if t.ended() {
				return at, errTurn
			}
		}
		page = next
	}
	return at, nil
}

// mayAsk takes one call out of the installation's share.
func (c *CatchUp) mayAsk(installationID int64, pass string) error {
	if c.scopes.spend(installationID) {
		return nil
	}
	c.metrics.spent.WithLabelValues(pass).Inc()
	return errLeave
}

// mayAskAgain is mayAsk for what is asked again and again: asked with the context that it returns, it gives the call back if
// GitHub reports that nothing has changed since the last time.
func (c *CatchUp) mayAskAgain(ctx context.Context, installationID int64, pass string) (context.Context, error) {
	return github.WithFree(ctx, func() { c.scopes.refund(installationID) }), c.mayAsk(installationID, pass)
}

func (c *CatchUp) sweepRun(ctx context.Context, r Repository, run github.Run) error {
	whose := run.Repository // as GitHub names it: the one that was asked for may have another name by now
	if whose.Name == "" {
		whose.Name = r.Name
	}
	for page := 1; page != 0; {
		ask, err := c.mayAskAgain(ctx, r.Account.InstallationID, PassQueueSwept)
		if err != nil {
			return err
		}
		jobs, next, err := c.opt.Forge.RunJobs(ask, r.Account.InstallationID, r.Name, run.ID, page)
		if errors.Is(err, fleet.ErrNotFound) {
			return nil // the run was deleted in between
		}
		if err != nil {
			return errors.Join(err, leaveIfLimited(err))
		}
		if err := c.recordMissed(ctx, r, whose, jobs); err != nil {
			return err
		}
		page = next
	}
	return nil
}

// recordMissed records what the ledger does not know of these jobs.
func (c *CatchUp) recordMissed(ctx context.Context, r Repository, whose fleet.Repository, jobs []github.WorkflowJob) error {
	ids := make([]int64, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	known, err := c.opt.Ledger.JobStates(ctx, ids)
	if err != nil {
		return fmt.Errorf("%w: reading the states of jobs: %w", errStore, err)
	}
	for _, job := range jobs {
		event, kind, ok := missed(job, known[job.ID], c.served, c.opt.Now(), c.opt.Every)
		if !ok {
			continue
		}
		if err := c.observe(ctx, event, r.Account, whose, job, kind); err != nil {
			return err
		}
	}
	return nil
}

// served reports whether a pool that is there now has these labels. A pool that is being deleted serves nothing new.
func (c *CatchUp) served(labels []string) bool {
	return len(dispatch.LabelKey(labels)) <= dispatch.MaxLabelKey &&
		slices.ContainsFunc(c.opt.Pools(), func(p dispatch.Pool) bool { return !p.Terminating && p.Serves(labels) })
}

// missed says which event of a job did not arrive, as GitHub shows the job and the ledger has it. A webhook may be on its way
// for so long.
func missed(
	job github.WorkflowJob, state fleet.JobState, served func([]string) bool, now time.Time, onItsWay time.Duration,
) (event fleet.JobEvent, kind recovery.Kind, ok bool) {
	event, ok = intake.StatusEvent(job)
	if !ok || state.Terminal() { // and nothing would revive it (CLAIM-4 is kept by the tables)
		return "", "", false
	}
	late := func(t time.Time) bool { return now.Sub(t) >= onItsWay }
	switch event {
	case fleet.JobEventQueued:
		ok = late(job.CreatedAt) && (state == fleet.JobWaiting || state == fleet.JobAbsent && served(job.Labels))
		return event, recovery.QueueSwept, ok
	case fleet.JobEventStarted:
		_, ours := runnerpod.PodUID(job.RunnerName)
		ok = late(job.StartedAt) && state != fleet.JobExecuting && (ours || state != fleet.JobAbsent)
		return event, recovery.UnstartedExecution, ok
	case fleet.JobEventCompleted, fleet.JobEventCancelled:
		return event, recovery.OrphanCompleted, late(job.CompletedAt) && state != fleet.JobAbsent
	default:
		return "", "", false
	}
}

// observe records what GitHub shows of a job as if a webhook had reported it.
func (c *CatchUp) observe(
	ctx context.Context, event fleet.JobEvent, owner dispatch.Account, repository fleet.Repository, job github.WorkflowJob, kind recovery.Kind,
) error {
	if c.opt.Off(kind) {
		return nil
	}
	rec, err := c.opt.Intake.Observe(ctx, intake.JobEvent(event, owner, repository, job), c.opt.Now())
	if err != nil {
		return fmt.Errorf("%w: recording what GitHub shows of job %d: %w", errStore, job.ID, err)
	}
	if rec.Outcome == fleet.Move {
		c.opt.Count(kind)
		c.opt.Log.InfoContext(ctx, "no webhook had reported what GitHub shows of a job", "job", job.ID, "repository", repository.Name,
			"account", owner.Login, "event", event, "runner", job.RunnerName, "kind", kind)
	}
	return nil
}
