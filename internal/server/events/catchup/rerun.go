package catchup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

const (
	lostJobsPerPass = 200
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
	_, err = byAccount(ctx, patience, byRun(lost), func(l lostRun) int64 { return l.jobs[0].Account.ID }, c.rerun)
	return ended(ctx, err)
}

// lostRun is what one run has lost. GitHub runs again one job, or all that failed: a second one is another attempt's by then.
type lostRun struct {
	id           int64
	installation int64
	repository   string
	jobs         []LostJob
}

func byRun(lost []LostJob) []lostRun {
	var runs []lostRun
	at := map[int64]int{}
	for _, l := range lost {
		i, known := at[l.RunID]
		if !known {
			i = len(runs)
			at[l.RunID] = i
			runs = append(runs, lostRun{id: l.RunID, installation: l.Account.InstallationID, repository: l.Repository})
		}
		runs[i].jobs = append(runs[i].jobs, l)
	}
	return runs
}

func (c *CatchUp) rerun(ctx context.Context, _ turn, lost lostRun) error {
	if err := c.mayAsk(lost.installation, PassLostJobRerun); err != nil {
		return err
	}
	run, err := c.opt.Forge.Run(ctx, lost.installation, lost.repository, lost.id)
	if err != nil {
		c.opt.Log.WarnContext(ctx, "jobs whose nodes died are not run again yet: their run cannot be read", "jobs", len(lost.jobs),
			"run", lost.id, "error", err)
		return errors.Join(unanswered(err), c.rerunLater(ctx, lost.jobs, c.opt.Now().Add(runEndsIn)))
	}
	if run.Status != github.RunCompleted {
		return c.rerunLater(ctx, lost.jobs, c.opt.Now().Add(runEndsIn))
	}
	left, err := c.stillLost(ctx, lost, run)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := c.mayAsk(lost.installation, PassLostJobRerun); err != nil {
		return err
	}
	booked, err := c.book(ctx, left)
	switch {
	case err != nil || len(booked) == 0:
		return err
	case len(booked) == 1:
		return c.asked(ctx, booked, c.opt.Forge.RerunJob(ctx, lost.installation, lost.repository, booked[0].LatestID))
	case len(booked) == len(left):
		return c.asked(ctx, booked, c.opt.Forge.RerunFailedJobs(ctx, lost.installation, lost.repository, lost.id))
	}
	// All that failed would be one too many: another has had its re-runs. These come one after the other.
	if err := c.unbook(ctx, booked[1:], c.opt.Now().Add(runEndsIn)); err != nil {
		return err
	}
	return c.asked(ctx, booked[:1], c.opt.Forge.RerunJob(ctx, lost.installation, lost.repository, booked[0].LatestID))
}

// stillLost are those jobs of a completed run that were not run again, by the ids that its latest attempt has for them.
func (c *CatchUp) stillLost(ctx context.Context, lost lostRun, run github.Run) ([]LostJob, error) {
	oldest := lost.jobs[0].RunAttempt
	for _, l := range lost.jobs {
		oldest = min(oldest, l.RunAttempt)
	}
	reruns, awaited, err := c.opt.Ledger.RerunsOfRun(ctx, lost.id, oldest, c.opt.Now().Add(-rerunWithin))
	if err != nil {
		return nil, fmt.Errorf("%w: reading the re-runs of a run: %w", errStore, err)
	}
	if awaited { // it is asked for together with the others, or not at all
		return nil, c.rerunLater(ctx, lost.jobs, c.opt.Now().Add(runEndsIn))
	}
	if run.Attempt <= oldest {
		for i := range lost.jobs {
			lost.jobs[i].LatestID = lost.jobs[i].ID
		}
		return lost.jobs, nil
	}
	if run.Attempt > oldest+reruns {
		return nil, c.byOthers(ctx, lost.jobs)
	}
	latest, err := c.latestJobs(ctx, lost)
	if err != nil {
		c.opt.Log.WarnContext(ctx, "jobs whose nodes died are not run again yet: the latest attempt of their run cannot be read",
			"jobs", len(lost.jobs), "run", lost.id, "error", err)
		return nil, errors.Join(unanswered(err), c.rerunLater(ctx, lost.jobs, c.opt.Now().Add(runEndsIn)))
	}
	var left, repeated []LostJob
	for _, l := range lost.jobs {
		if id, found := latest[onRunner{l.Name, l.RunnerName}]; found {
			l.LatestID = id
			left = append(left, l)
		} else {
			repeated = append(repeated, l)
		}
	}
	return left, c.byOthers(ctx, repeated)
}

// onRunner tells an execution of a job: a runner has but one.
type onRunner struct{ name, runner string }

// latestJobs are the failed jobs of a run's latest attempt, with those that it has kept of earlier ones.
func (c *CatchUp) latestJobs(ctx context.Context, lost lostRun) (map[onRunner]int64, error) {
	failed := map[onRunner]int64{}
	for page := 1; page != 0; {
		if err := c.mayAsk(lost.installation, PassLostJobRerun); err != nil {
			return nil, err
		}
		jobs, next, err := c.opt.Forge.RunJobs(ctx, lost.installation, lost.repository, lost.id, page)
		if err != nil {
			return nil, err
		}
		for _, job := range jobs {
			if job.Status == github.JobCompleted && job.Conclusion == "failure" && job.RunnerName != "" {
				failed[onRunner{job.Name, job.RunnerName}] = job.ID
			}
		}
		page = next
	}
	return failed, nil
}

func (c *CatchUp) byOthers(ctx context.Context, jobs []LostJob) error {
	for _, l := range jobs {
		c.opt.Log.InfoContext(ctx, "a job whose node died was run again by a user", "job", l.ID, "run", l.RunID)
	}
	return c.unbook(ctx, jobs, time.Time{})
}

// book books a re-run of each job that has one left.
func (c *CatchUp) book(ctx context.Context, jobs []LostJob) ([]LostJob, error) {
	var booked []LostJob
	now := c.opt.Now()
	for _, l := range jobs {
		ok, err := c.opt.Ledger.BookRerun(ctx, l.ID, c.opt.RerunLostJobs, now)
		if err != nil {
			return nil, fmt.Errorf("%w: booking a re-run: %w", errStore, errors.Join(err, c.unbook(ctx, booked, now.Add(runEndsIn))))
		}
		if !ok {
			c.opt.Log.WarnContext(ctx, "a job whose node died is not run again: its run has had its re-runs", "job", l.ID, "run", l.RunID,
				"name", l.Name, "most", c.opt.RerunLostJobs)
			continue
		}
		booked = append(booked, l)
	}
	return booked, nil
}

// asked deals with GitHub's answer. A booking stays unless GitHub certainly did nothing: no job is run again twice.
func (c *CatchUp) asked(ctx context.Context, jobs []LostJob, err error) error {
	var limited *fleet.RateLimitedError
	switch {
	case err == nil:
		for _, l := range jobs {
			c.opt.Count(recovery.LostJobRerun)
			c.opt.Log.InfoContext(ctx, "requested a rerun of a job whose node died", "job", l.ID, "run", l.RunID,
				"name", l.Name, "repository", l.Repository, "account", l.Account.Login, "pod", l.PodName, "lost_at", l.LostAt)
		}
		return nil
	case errors.As(err, &limited):
		return errors.Join(errLeave, c.unbook(ctx, jobs, limited.Until))
	case fleet.Definite(err):
		c.opt.Log.WarnContext(ctx, "GitHub refuses to run jobs again; the App needs the permission to write Actions", "jobs", len(jobs),
			"run", jobs[0].RunID, "repository", jobs[0].Repository, "error", err)
		return c.unbook(ctx, jobs, time.Time{})
	default:
		c.opt.Log.WarnContext(ctx, "GitHub may or may not rerun jobs: the request is not repeated", "jobs", len(jobs), "run", jobs[0].RunID,
			"repository", jobs[0].Repository, "error", err)
		return errLeave
	}
}

func (c *CatchUp) rerunLater(ctx context.Context, jobs []LostJob, at time.Time) error {
	for _, l := range jobs {
		if err := c.opt.Ledger.RerunLater(ctx, l.ID, at); err != nil {
			return fmt.Errorf("%w: putting a re-run off: %w", errStore, err)
		}
	}
	return nil
}

func (c *CatchUp) unbook(ctx context.Context, jobs []LostJob, again time.Time) error {
	for _, l := range jobs {
		if err := c.opt.Ledger.UnbookRerun(ctx, l.ID, again); err != nil {
			return fmt.Errorf("%w: taking back a re-run: %w", errStore, err)
		}
	}
	return nil
}
