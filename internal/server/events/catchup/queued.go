package catchup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// expiredPerPass is how many jobs are given up in one run.
const expiredPerPass = 1000

// Queued asks GitHub about jobs that have been waiting for long, and gives up those whose state stays unknown after a day
// (RECV-7). A job that was asked about goes to the end of the line, whatever the result, so that a few unanswerable ones do
// not block the rest.
func (c *CatchUp) Queued(ctx context.Context) error {
	now := c.opt.Now()
	return errors.Join(c.askAboutWaiting(ctx, now), c.expire(ctx, now))
}

func (c *CatchUp) askAboutWaiting(ctx context.Context, now time.Time) error {
	next, err := backlog[WaitingJob]{
		ledger: c.opt.Ledger, account: func(w WaitingJob) int64 { return w.Event.Account.ID }, do: c.askAbout,
		due: func(ctx context.Context, accounts []int64) ([]WaitingJob, error) {
			list, err := c.opt.Ledger.JobsToAskAbout(ctx, now.Add(-c.opt.AskAfter), accounts, itemsAtOnce)
			if err != nil {
				return nil, fmt.Errorf("reading which jobs wait: %w", err)
			}
			return list, nil
		},
	}.workOff(ctx, c.askedOf.Load())
	c.askedOf.Store(next)
	return err
}

func (c *CatchUp) askAbout(ctx context.Context, _ turn, w WaitingJob) error {
	var leave error
	if w.Event.Account.InstallationID != 0 && !w.Suspended { // otherwise the App has no access
		err := c.inquire(ctx, w)
		if errors.Is(err, errStore) || errors.Is(err, errLeave) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			c.opt.Log.WarnContext(ctx, "GitHub cannot say what has become of a job that waits", "job", w.Event.JobID,
				"repository", w.Event.Repository, "account", w.Event.Account.Login, "error", err)
			leave = unanswered(err)
		}
	}
	if err := c.opt.Ledger.AskedAbout(ctx, []int64{w.Event.JobID}, c.opt.Now()); err != nil {
		return fmt.Errorf("%w: noting that a job was asked about: %w", errStore, err)
	}
	return leave
}

// inquire asks GitHub about one job and records the answer. A limit ends the account's turn (errLeave) without counting
// the job as asked about; any other error counts.
func (c *CatchUp) inquire(ctx context.Context, w WaitingJob) error {
	account := w.Event.Account
	ask, err := c.mayAskAgain(ctx, account.InstallationID, PassQueuedReaped)
	if err != nil {
		return err
	}
	job, err := c.opt.Forge.Job(ask, account.InstallationID, w.repository(), w.Event.JobID)
	switch {
	case err == nil:
		return c.judge(ctx, w, job)
	case errors.Is(err, fleet.ErrNotFound):
		return c.gone(ctx, w)
	default:
		return errors.Join(err, leaveIfLimited(err))
	}
}

// judge records what GitHub shows of a job that waits.
func (c *CatchUp) judge(ctx context.Context, w WaitingJob, job github.WorkflowJob) error {
	event, ok := intake.StatusEvent(job)
	if !ok {
		c.opt.Log.WarnContext(ctx, "GitHub calls a job something that is not known here", "job", job.ID, "status", job.Status)
		return nil
	}
	kind := recovery.QueuedReaped
	switch event {
	case fleet.JobEventWaiting:
		if w.State == fleet.JobWaiting {
			// Approval may take weeks, and GitHub ends it itself after 30 days: while it says so the job is not given up.
			if err := c.opt.Ledger.ConfirmWaiting(ctx, job.ID, c.opt.Now()); err != nil {
				return fmt.Errorf("%w: noting that a job rightly waits: %w", errStore, err)
			}
		}
		return nil
	case fleet.JobEventQueued:
		if w.State == fleet.JobQueued {
			return nil
		}
		kind = recovery.QueueSwept
	case fleet.JobEventStarted:
		kind = recovery.UnstartedExecution
	}
	return c.observe(ctx, event, w.Event.Account, w.repository(), job, kind)
}

// repository of the job. A row of an earlier version has no id of it, and then only the name identifies it.
func (w WaitingJob) repository() fleet.Repository {
	return fleet.Repository{Name: w.Event.Repository, ID: w.Event.RepositoryID}
}

// gone: GitHub does not find the job. That counts only beside a read of the same repository that succeeds just now:
// otherwise the permission, the repository or the installation may be gone, and the job exist.
func (c *CatchUp) gone(ctx context.Context, w WaitingJob) error {
	account := w.Event.Account
	if err := c.mayAsk(account.InstallationID, PassQueuedReaped); err != nil {
		return err
	}
	if err := c.opt.Forge.ReadRuns(ctx, account.InstallationID, w.repository()); err != nil { // EXCL-6's rule, for jobs
		return errors.Join(fmt.Errorf("job %d is not found, beside a read that failed: %w", w.Event.JobID, err), leaveIfLimited(err))
	}
	ev := w.Event
	ev.Kind, ev.Conclusion, ev.CompletedAt = fleet.JobEventCancelled, "cancelled", c.opt.Now()
	rec, err := c.opt.Intake.Observe(ctx, ev, c.opt.Now())
	if err != nil {
		return fmt.Errorf("%w: recording that job %d is gone: %w", errStore, ev.JobID, err)
	}
	if rec.Outcome == fleet.Move {
		c.opt.Count(recovery.QueuedReaped)
		c.opt.Log.InfoContext(ctx, "a queued job no longer exists at GitHub", "job", ev.JobID, "repository", ev.Repository, "account", account.Login)
	}
	return nil
}

// expire gives up what nothing has moved for a day.
func (c *CatchUp) expire(ctx context.Context, now time.Time) error {
	before := now.Add(-c.opt.StaleAfter)
	// After an outage no job was asked about in time: then there is one more interval to do it.
	ids, err := c.opt.Ledger.ExpireJobs(ctx, before, before.Add(-c.opt.AskAfter), now, expiredPerPass)
	if err != nil {
		return fmt.Errorf("giving up jobs whose state stays unknown: %w", err)
	}
	for _, id := range ids {
		c.opt.Count(recovery.QueuedReaped)
		c.opt.Log.WarnContext(ctx, "a job is given up: it has been waiting too long and GitHub could not say that it still needs a runner",
			"job", id, "after", c.opt.StaleAfter)
	}
	if len(ids) == expiredPerPass { // RECV-6
		c.opt.Log.WarnContext(ctx, "more jobs may be stale than one run may mark", "most", expiredPerPass)
	}
	return nil
}
