package catchup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/recovery"
)

const (
	lostJobsPerPass = 20
	// rerunWithin: a job whose node died longer ago is left to people.
	rerunWithin = 24 * time.Hour
	// runEndsIn is when to look again whether a run has completed: GitHub runs nothing again before.
	runEndsIn = time.Minute
)

// Rerun asks GitHub to run jobs again that failed because their nodes died: once each, and at most so often for all the
// jobs of one name in one run.
func (c *CatchUp) Rerun(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now := c.opt.Now()
	lost, err := c.opt.Ledger.JobsLostWithTheirPods(ctx, now.Add(-rerunWithin), now, lostJobsPerPass)
	if err != nil {
		return ended(ctx, fmt.Errorf("reading jobs whose nodes died: %w", err))
	}
	_, err = byAccount(ctx, lost, func(l LostJob) int64 { return l.Account.ID }, c.rerun)
	return ended(ctx, err)
}

func (c *CatchUp) rerun(ctx context.Context, l LostJob) error {
	installation := l.Account.InstallationID
	if err := c.mayAsk(installation, PassLostJobRerun); err != nil {
		return err
	}
	run, err := c.opt.Forge.Run(ctx, installation, l.Repository, l.RunID)
	if err != nil {
		c.opt.Log.WarnContext(ctx, "a job whose node died is not run again yet: its run cannot be read", "job", l.ID, "run", l.RunID, "error", err)
		return errors.Join(unanswered(err), c.rerunLater(ctx, l))
	}
	switch {
	case run.Status != github.RunCompleted:
		return c.rerunLater(ctx, l)
	case run.Attempt > l.RunAttempt:
		c.opt.Log.InfoContext(ctx, "a job whose node died was run again by somebody else", "job", l.ID, "run", l.RunID)
		return c.unbook(ctx, l, time.Time{})
	}
	if err := c.mayAsk(installation, PassLostJobRerun); err != nil {
		return err
	}
	booked, err := c.opt.Ledger.BookRerun(ctx, l.ID, c.opt.RerunLostJobs, c.opt.Now())
	if err != nil {
		return fmt.Errorf("%w: booking a re-run: %w", errStore, err)
	}
	if !booked {
		c.opt.Log.WarnContext(ctx, "a job whose node died is not run again: its run has had its re-runs", "job", l.ID, "run", l.RunID,
			"name", l.Name, "most", c.opt.RerunLostJobs)
		return nil
	}
	return c.asked(ctx, l, c.opt.Forge.RerunJob(ctx, installation, l.Repository, l.ID))
}

// asked deals with GitHub's answer. A booking stays unless GitHub certainly did nothing: no job is run again twice.
func (c *CatchUp) asked(ctx context.Context, l LostJob, err error) error {
	var limited *fleet.RateLimitedError
	switch {
	case err == nil:
		c.opt.Count(recovery.LostJobRerun)
		c.opt.Log.InfoContext(ctx, "asked GitHub to run a job again: its node died under it", "job", l.ID, "run", l.RunID,
			"name", l.Name, "repository", l.Repository, "account", l.Account.Login, "pod", l.PodName, "lost_at", l.LostAt)
		return nil
	case errors.As(err, &limited):
		return errors.Join(errLeave, c.unbook(ctx, l, limited.Until))
	case fleet.Definite(err):
		c.opt.Log.WarnContext(ctx, "GitHub refuses to run a job again; the App needs the permission to write Actions", "job", l.ID,
			"run", l.RunID, "repository", l.Repository, "error", err)
		return c.unbook(ctx, l, time.Time{})
	default:
		c.opt.Log.WarnContext(ctx, "GitHub may or may not run a job again: it is not asked twice", "job", l.ID, "run", l.RunID,
			"repository", l.Repository, "error", err)
		return errLeave
	}
}

func (c *CatchUp) rerunLater(ctx context.Context, l LostJob) error {
	if err := c.opt.Ledger.RerunLater(ctx, l.ID, c.opt.Now().Add(runEndsIn)); err != nil {
		return fmt.Errorf("%w: putting a re-run off: %w", errStore, err)
	}
	return nil
}

func (c *CatchUp) unbook(ctx context.Context, l LostJob, again time.Time) error {
	if err := c.opt.Ledger.UnbookRerun(ctx, l.ID, again); err != nil {
		return fmt.Errorf("%w: taking back a re-run: %w", errStore, err)
	}
	return nil
}
