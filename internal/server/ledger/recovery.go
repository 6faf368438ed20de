package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

var _ recovery.Ledger = (*Store)(nil)

// Suspects reads the rows that a query selects, a page at a time.
func (s *Store) Suspects(ctx context.Context, look recovery.Look) ([]recovery.Row, error) {
	rows, err := s.queries().RecoveryClaims(ctx, sqlcgen.RecoveryClaimsParams{
		After: look.After, Sweep: look.Sweep, LongAgo: look.LongAgo, Now: &look.Now, Most: int32(look.Most), //nolint:gosec // a small bound
		Listed: orEmpty(look.Listed), Named: orEmpty(look.Named),
	})
	if err != nil {
		return nil, fmt.Errorf("reading claims that look wrong: %w", err)
	}
	out := make([]recovery.Row, len(rows))
	for i, row := range rows {
		out[i] = recovery.Row{
			Claim: dispatch.Claim{
				PodUID: row.PodUid, Namespace: row.Namespace, PodName: row.PodName, Pool: row.Pool,
				State: fleet.ClaimState(row.State), Generation: row.Generation, LeaseUntil: deref(row.LeaseUntil),
				Account:  accountOf(deref(row.AccountID), row.Login, row.Kind, deref(row.InstallationID)),
				LabelKey: row.LabelKey, JobID: deref(row.JobID), Repository: row.Repository, RepositoryID: row.RepositoryID,
				RunnerName:   row.RunnerName,
				Acknowledged: row.AcknowledgedAt != nil, Proof: row.Proof,
			},
			MovedAt: row.MovedAt, EndedAt: deref(row.EndedAt), MissingSince: deref(row.MissingSince), LookAt: deref(row.LookAt),
			StoppedAt: deref(row.StoppedAt), Job: fleet.JobState(row.JobState), Buried: row.Buried, Open: row.Open,
			GoneAt: row.GoneAt,
		}
	}
	return out, nil
}

func accountOf(id int64, login, kind string, installationID int64) dispatch.Account {
	return dispatch.Account{ID: id, Login: login, User: kind == "User", InstallationID: installationID}
}

// orEmpty: an array parameter that is nil is NULL, which no row compares with.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Unowned returns those of the pods that have no claim, and of which nothing is proven yet.
func (s *Store) Unowned(ctx context.Context, podUIDs []string) ([]string, error) {
	unowned, err := s.queries().UnownedPods(ctx, orEmpty(podUIDs))
	if err != nil {
		return nil, fmt.Errorf("reading which of %d pods have no claim: %w", len(podUIDs), err)
	}
	return unowned, nil
}

// NoteSightings keeps since when pods have shown what they show, and returns that by UID.
func (s *Store) NoteSightings(ctx context.Context, shown map[string]string, all bool, now time.Time) (map[string]time.Time, error) {
	uids, texts := make([]string, 0, len(shown)), make([]string, 0, len(shown))
	for uid, text := range shown {
		uids, texts = append(uids, uid), append(texts, text)
	}
	since := make(map[string]time.Time, len(shown))
	if len(uids) > 0 {
		rows, err := s.queries().NoteSightings(ctx, now, uids, texts)
		if err != nil {
			return nil, fmt.Errorf("noting what %d pods without a claim show: %w", len(uids), err)
		}
		for _, row := range rows {
			since[row.PodUid] = row.Since
		}
	}
	if all {
		if err := s.queries().ForgetSightings(ctx, uids); err != nil {
			return nil, fmt.Errorf("forgetting what pods have shown: %w", err)
		}
	}
	return since, nil
}

// NoteAbsence keeps since when pods of live claims have not been listed.
func (s *Store) NoteAbsence(ctx context.Context, missing, seen []string, now time.Time) error {
	if len(missing) > 0 {
		if err := s.queries().NotePodsMissing(ctx, &now, missing); err != nil {
			return fmt.Errorf("noting that %d pods are missing: %w", len(missing), err)
		}
	}
	if len(seen) > 0 {
		if err := s.queries().NotePodsSeen(ctx, seen); err != nil {
			return fmt.Errorf("noting that %d pods are there: %w", len(seen), err)
		}
	}
	return nil
}

// LookAtClaimAgain stores when the claim must be checked again, as long as its generation holds.
func (s *Store) LookAtClaimAgain(ctx context.Context, podUID string, generation int64, at time.Time) error {
	return s.queries().LookAtClaimAgain(ctx, &at, podUID, generation)
}

// LookAtJobAgain stores when a job without a claim must be checked again.
func (s *Store) LookAtJobAgain(ctx context.Context, jobID int64, at time.Time) error {
	return s.queries().LookAtJobAgain(ctx, &at, jobID)
}

// DoubtRegistrations opens registrations again that were not found long ago, after mints that were never answered.
func (s *Store) DoubtRegistrations(ctx context.Context, longAgo time.Time, most int) error {
	return s.queries().DoubtRegistrations(ctx, &longAgo, int32(most)) //nolint:gosec // a small bound
}

// StrayRegistrations lists pods without a row that are not listed, and of which a registration may be alive.
func (s *Store) StrayRegistrations(
	ctx context.Context, listed []string, longAgo time.Time, after string, most int,
) ([]recovery.StrayPod, error) {
	rows, err := s.queries().StrayRegistrations(ctx, sqlcgen.StrayRegistrationsParams{
		LongAgo: longAgo, After: after, Listed: orEmpty(listed), Most: int32(most), //nolint:gosec // a small bound
	})
	if err != nil {
		return nil, fmt.Errorf("listing registrations without a pod: %w", err)
	}
	out := make([]recovery.StrayPod, len(rows))
	for i, row := range rows {
		out[i] = recovery.StrayPod{
			UID: row.PodUid, Since: row.CreatedAt, Account: accountOf(row.AccountID, row.Login, row.Kind, row.InstallationID),
		}
	}
	return out, nil
}

// StraySessions lists pods without a row that are not listed, and whose session is open.
func (s *Store) StraySessions(ctx context.Context, listed []string, after string, most int) ([]recovery.StrayPod, error) {
	rows, err := s.queries().StraySessions(ctx, after, orEmpty(listed), int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, fmt.Errorf("listing sessions without a pod: %w", err)
	}
	out := make([]recovery.StrayPod, len(rows))
	for i, row := range rows {
		out[i] = recovery.StrayPod{UID: row.PodUid, Since: row.StartedAt}
	}
	return out, nil
}

// StrayJobs lists jobs whose rows say that a claim has them, while none does.
func (s *Store) StrayJobs(ctx context.Context, longAgo, now time.Time, after int64, most int) ([]recovery.StrayJob, error) {
	rows, err := s.queries().StrayJobs(ctx, sqlcgen.StrayJobsParams{
		LongAgo: longAgo, Now: &now, After: after, Most: int32(most), //nolint:gosec // a small bound
	})
	if err != nil {
		return nil, fmt.Errorf("listing jobs without a claim: %w", err)
	}
	out := make([]recovery.StrayJob, len(rows))
	for i, row := range rows {
		out[i] = recovery.StrayJob{
			ID: row.ID, State: fleet.JobState(row.State), Repository: fleet.Repository{Name: row.Repository, ID: row.RepositoryID},
			RunnerName: row.RunnerName, Labels: row.LabelKey, Since: row.UpdatedAt,
			Account: accountOf(row.AccountID, row.Login, row.Kind, deref(row.InstallationID)),
		}
	}
	return out, nil
}

// CloseSession closes the session of a pod without a row; false when it was closed, or has a row.
func (s *Store) CloseSession(ctx context.Context, podUID string, now time.Time) (bool, error) {
	n, err := s.queries().CloseStraySession(ctx, now, podUID)
	return n == 1, err
}

// RequeueJob queues a job again that no live claim has: one that was claimed or minted, or, if GitHub reports it as queued, one that was
// reported as running. False: it is neither, or a claim has it.
func (s *Store) RequeueJob(ctx context.Context, jobID int64, githubSaysQueued bool, now time.Time) (bool, error) {
	done := false
	err := s.inTx(ctx, "queueing a job again", func(q *sqlcgen.Queries) error {
		done = false
		// Claims are locked before jobs everywhere; a claim that is made for this job now has to move its row, and waits.
		if _, claimed, err := found(q.LiveClaimOfJob(ctx, jobID)); err != nil || claimed {
			return err
		}
		job, ok, err := found(q.LockJob(ctx, jobID))
		if err != nil || !ok {
			return err
		}
		// A transaction that took it while we waited for its row has committed by now.
		if _, claimed, err := found(q.LiveClaimOfJob(ctx, jobID)); err != nil || claimed {
			return err
		}
		if fleet.JobState(job.State) != fleet.JobExecuting {
			done = job.State == string(fleet.JobClaimed) || job.State == string(fleet.JobMinted)
			return requeue(ctx, q, jobID, now)
		}
		next, outcome := fleet.NextJobState(fleet.JobExecuting, fleet.JobEventReturned)
		if !githubSaysQueued || outcome != fleet.Move { // RECV-3
			return nil
		}
		n, err := q.MoveJob(ctx, sqlcgen.MoveJobParams{Next: string(next), Now: now, ID: jobID, Expected: job.State})
		if done = n == 1; err != nil || !done {
			return err
		}
		if err := q.ReturnJob(ctx, jobID); err != nil {
			return err
		}
		if err := feedLane(ctx, q, job.LabelKey, job.AccountID, job.QueuedAt); err != nil {
			return err
		}
		return q.NotifyWork(ctx, job.LabelKey)
	})
	return done && err == nil, err
}
