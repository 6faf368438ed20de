package intake

import (
	"context"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Observe records what was read of a job at GitHub instead of from a webhook: the same transaction as an event's, by the
// same tables (Resolve, tombstones), and without a delivery to be deduplicated by. The tables make it safe to repeat.
func (i *Intake) Observe(ctx context.Context, ev dispatch.JobEvent, at time.Time) (dispatch.Recorded, error) {
	rec, err := i.opt.Store.RecordJob(ctx, dispatch.Delivery{Event: "workflow_job", At: at}, ev)
	if err == nil {
		i.tell(ev, rec)
	}
	return rec, err
}

func account(a github.Account, installationID int64) dispatch.Account {
	return dispatch.Account{ID: a.ID, Login: a.Login, User: a.Type == "User", InstallationID: installationID}
}

func jobEventKind(ev *github.WorkflowJobEvent) (fleet.JobEvent, bool) {
	switch ev.Action {
	case github.JobQueued:
		return fleet.JobEventQueued, true
	case github.JobWaiting:
		return fleet.JobEventWaiting, true
	case github.JobInProgress:
		return fleet.JobEventStarted, true
	case github.JobCompleted:
		return ended(ev.Job.Conclusion), true
	default:
		return "", false
	}
}

func ended(conclusion string) fleet.JobEvent {
	if strings.EqualFold(conclusion, "cancelled") {
		return fleet.JobEventCancelled
	}
	return fleet.JobEventCompleted
}

// StatusEvent is the event that would have brought a job to the status that the API shows; false for a status from which
// nothing follows.
func StatusEvent(job github.WorkflowJob) (fleet.JobEvent, bool) {
	switch job.Status {
	case github.JobQueued:
		return fleet.JobEventQueued, true
	case github.JobWaiting, "pending", "requested":
		return fleet.JobEventWaiting, true
	case github.JobInProgress:
		return fleet.JobEventStarted, true
	case github.JobCompleted:
		return ended(job.Conclusion), true
	default:
		return "", false
	}
}

// JobEvent is a job of GitHub's in dispatch's words.
func JobEvent(kind fleet.JobEvent, owner dispatch.Account, repository fleet.Repository, job github.WorkflowJob) dispatch.JobEvent {
	return dispatch.JobEvent{
		Kind: kind, Account: owner,
		JobID: job.ID, Repository: repository.Name, RepositoryID: repository.ID, RunID: job.RunID, RunAttempt: job.RunAttempt,
		Name: job.Name, Workflow: job.WorkflowName, HeadBranch: job.HeadBranch, HeadSHA: job.HeadSHA,
		Labels: job.Labels, Conclusion: job.Conclusion, RunnerName: job.RunnerName, RunnerID: job.RunnerID,
		QueuedAt: job.CreatedAt, StartedAt: job.StartedAt, CompletedAt: job.CompletedAt,
	}
}
