package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/operator"
	"github.com/bullpen-ci/bullpen/internal/operatorapi"
	"github.com/bullpen-ci/bullpen/internal/postgres/sqlcgen"
)

// Jobs returns a page, the latest first.
func (s *Store) Jobs(ctx context.Context, q operator.JobQuery) ([]operatorapi.Job, error) {
	arg := sqlcgen.JobPageParams{Before: q.Before, Repository: q.Repository, States: q.States, Most: int32(q.Most)} //nolint:gosec // at most MaxPage
	if arg.Before == 0 {
		arg.Before = math.MaxInt64
	}
	if arg.States == nil {
		arg.States = []string{}
	}
	if !storable(q.Repository) {
		return nil, nil
	}
	if q.Account != "" {
		var err error
		if arg.AccountID, err = resolveAccount(ctx, s.queries(), q.Account); err != nil {
			return nil, err
		}
	}
	var rows []sqlcgen.JobPageRow
	if q.Ended {
		var err error
		if rows, err = s.queries().JobPage(ctx, arg); err != nil {
			return nil, fmt.Errorf("reading jobs: %w", err)
		}
	} else {
		live, err := s.queries().LiveJobPage(ctx, sqlcgen.LiveJobPageParams(arg))
		if err != nil {
			return nil, fmt.Errorf("reading jobs: %w", err)
		}
		for _, row := range live {
			rows = append(rows, sqlcgen.JobPageRow(row))
		}
	}
	jobs := make([]operatorapi.Job, len(rows))
	for i, row := range rows {
		jobs[i] = jobOf(row)
	}
	return jobs, nil
}

func jobOf(row sqlcgen.JobPageRow) operatorapi.Job {
	job := operatorapi.Job{
		ID: row.ID, RunID: row.RunID, RunAttempt: row.RunAttempt, Account: row.Login, Repository: row.Repository, Workflow: row.Workflow,
		Name: row.Name, Branch: row.HeadBranch, Commit: row.HeadSha, Labels: row.Labels, State: row.State, Held: row.Held,
		Conclusion: row.Conclusion, RunnerName: row.RunnerName, Pool: row.Pool, Pod: row.Pod, QueuedAt: row.QueuedAt.UTC(),
		ClaimedAt: row.ClaimedAt, MintedAt: row.MintedAt, Acknowledged: row.AcknowledgedAt, StartedAt: row.StartedAt, CompletedAt: row.CompletedAt,
		ReceivedAt: row.ReceivedAt, ApprovedAt: row.ApprovedAt,
	}
	if job.RunnerName == "" {
		job.RunnerName = row.Registered
	}
	return job
}

// Job returns one job; operator.ErrNotFound.
func (s *Store) Job(ctx context.Context, id int64) (operatorapi.Job, error) {
	row, ok, err := found(s.queries().JobInFull(ctx, id))
	switch {
	case err != nil:
		return operatorapi.Job{}, fmt.Errorf("reading a job: %w", err)
	case !ok:
		return operatorapi.Job{}, operator.ErrNotFound
	}
	job := jobOf(sqlcgen.JobPageRow(row))
	if row.RunnerName == "" {
		return job, nil
	}
	session, ok, err := found(s.queries().SessionOfJob(ctx, id, row.RunnerName))
	if err != nil {
		return operatorapi.Job{}, fmt.Errorf("reading a job's session: %w", err)
	}
	if ok {
		recall(&job, session)
	}
	return job, nil
}

// recall adds what the session keeps of a claim that is gone.
func recall(job *operatorapi.Job, session sqlcgen.SessionOfJobRow) {
	job.ExitCode, job.RunnerLostAt = session.ExitCode, session.LostAt
	if job.ClaimedAt != nil {
		if job.Pod == session.PodName {
			job.PodNamespace = session.Namespace
		}
		return
	}
	job.PodNamespace, job.Pod, job.Pool = session.Namespace, session.PodName, session.Pool
	job.ClaimedAt, job.Acknowledged = session.ClaimedAt, session.AcknowledgedAt
	if session.ClaimedAt != nil { // it was opened by the mint, and not by somebody who found a runner at work
		minted := session.StartedAt
		job.MintedAt = &minted
	}
}

// JobEvidence reads what the ledger knows about why a job has no runner, as of one moment.
func (s *Store) JobEvidence(ctx context.Context, id int64) (operator.JobEvidence, error) {
	e := operator.JobEvidence{}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		row, ok, err := found(q.JobInFull(ctx, id))
		if err != nil {
			return err
		}
		if !ok {
			e.Ended, err = q.TombstoneExists(ctx, id)
			return err
		}
		job := jobOf(sqlcgen.JobPageRow(row))
		e.Job, e.Claim = &job, fleet.ClaimState(row.Claim)
		if e.Account, err = s.account(ctx, q, row.AccountID); err != nil {
			return err
		}
		if e.Older, err = q.OlderInLane(ctx, sqlcgen.OlderInLaneParams{
			LabelKey: row.LabelKey, AccountID: row.AccountID, QueuedAt: row.QueuedAt, ID: row.ID, Most: operatorapi.MaxQueued,
		}); err != nil {
			return err
		}
		running, err := q.RunningOfRepository(ctx, row.AccountID, row.Repository)
		e.OfRepository = map[fleet.Platform]int64{}
		for _, r := range running {
			e.OfRepository[fleet.Platform(r.Platform)] = r.Jobs
		}
		return err
	})
	if err != nil {
		return operator.JobEvidence{}, fmt.Errorf("reading what is known of a job: %w", err)
	}
	return e, nil
}
