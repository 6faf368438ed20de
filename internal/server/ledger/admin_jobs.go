package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Jobs returns a page, newest first.
func (s *Store) Jobs(ctx context.Context, q admin.JobQuery) ([]admin.StoredJob, error) {
	if !storable(q.Repository) || q.Repository != "" && !strings.Contains(q.Repository, "/") {
		return nil, nil
	}
	if q.Before == 0 {
		q.Before = math.MaxInt64
	}
	accounts, err := s.accountsOf(ctx, q)
	if err != nil {
		return nil, err
	}
	var jobs []admin.StoredJob
	err = s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		queries := sqlcgen.New(tx)
		ids, err := pageOfJobs(ctx, queries, q, accounts)
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err := queries.JobsInFull(ctx, ids)
		for _, row := range rows {
			jobs = append(jobs, storedJob(row))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading jobs: %w", err)
	}
	return jobs, nil
}

// accountsOf are the accounts whose jobs are asked for: the one that is named, or those that have the login of the repository's owner. None: it may be any.
func (s *Store) accountsOf(ctx context.Context, q admin.JobQuery) ([]int64, error) {
	if q.Account != "" {
		id, err := resolveAccount(ctx, s.queries(), q.Account)
		return []int64{id}, err
	}
	owner, _, whole := strings.Cut(q.Repository, "/")
	if !whole || owner == "" {
		return nil, nil
	}
	rows, err := s.queries().AccountsByLogin(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("reading whose repository that is: %w", err)
	}
	var accounts []int64
	for _, row := range rows {
		accounts = append(accounts, row.ID)
	}
	return accounts, nil
}

// pageOfJobs finds the jobs of a page by an index that has just those, where there is one: what a page costs is what it shows.
func pageOfJobs(ctx context.Context, queries *sqlcgen.Queries, q admin.JobQuery, accounts []int64) ([]int64, error) {
	states, live := statesOf(q)
	most := int32(q.Most) //nolint:gosec // at most MaxPage
	switch {
	case len(accounts) > 0:
		return queries.JobIDsOfAccounts(ctx, sqlcgen.JobIDsOfAccountsParams{Accounts: accounts, States: states, Repository: q.Repository, Before: q.Before, Most: most})
	case live:
		return queries.LiveJobIDs(ctx, sqlcgen.LiveJobIDsParams{States: states, Repository: q.Repository, Before: q.Before, Most: most})
	default:
		return queries.JobIDs(ctx, sqlcgen.JobIDsParams{States: states, Repository: q.Repository, Before: q.Before, Most: most})
	}
}

// statesOf are the states that a query asks for, and whether none of them is an end.
func statesOf(q admin.JobQuery) (states []string, live bool) {
	states, live = slices.Clone(q.States), true
	slices.Sort(states)
	states = slices.Compact(states) // what is asked for twice is shown once
	for _, state := range states {
		live = live && !fleet.JobState(state).Terminal()
	}
	if len(states) > 0 {
		return states, live
	}
	for _, state := range fleet.JobStates() {
		// Only a completed job has a conclusion.
		if state != fleet.JobAbsent && (state.Terminal() && q.Ended || !state.Terminal() && len(q.Conclusions) == 0) {
			states = append(states, string(state))
		}
	}
	return states, !q.Ended
}

// jobInFull reads one; false: there is no such row.
func jobInFull(ctx context.Context, queries *sqlcgen.Queries, id int64) (sqlcgen.JobsInFullRow, bool, error) {
	rows, err := queries.JobsInFull(ctx, []int64{id})
	if err != nil || len(rows) == 0 {
		return sqlcgen.JobsInFullRow{}, false, err
	}
	return rows[0], true, nil
}

func storedJob(row sqlcgen.JobsInFullRow) admin.StoredJob {
	return admin.StoredJob{
		Job: jobOf(row), Lane: dispatch.LaneRef{LabelKey: row.LabelKey, AccountID: row.AccountID},
		Place: dispatch.JobAge{ID: row.ID, QueuedAt: row.QueuedAt},
	}
}

func jobOf(row sqlcgen.JobsInFullRow) adminapi.Job {
	job := adminapi.Job{
		ID: row.ID, RunID: row.RunID, RunAttempt: row.RunAttempt, Account: row.Login, Repository: row.Repository, Workflow: row.Workflow,
		Name: row.Name, Branch: row.HeadBranch, Commit: row.HeadSha, Labels: row.Labels, State: row.State, BlockedBy: row.Held,
		Conclusion: row.Conclusion, RunnerName: row.RunnerName, Pool: row.Pool, Pod: row.Pod, PodNamespace: row.Namespace, QueuedAt: row.CreatedAt.UTC(),
		ClaimedAt: row.ClaimedAt, RegisteredAt: row.MintedAt, Acknowledged: row.AcknowledgedAt, StartedAt: row.StartedAt, CompletedAt: row.CompletedAt,
		ReceivedAt: row.ReceivedAt, ApprovedAt: row.ApprovedAt,
	}
	if job.RunnerName == "" {
		job.RunnerName = row.Registered
	}
	recall(&job, row)
	return job
}

// recall adds what the session keeps of a claim that is gone.
func recall(job *adminapi.Job, row sqlcgen.JobsInFullRow) {
	job.ExitCode, job.RunnerLostAt = row.ExitCode, row.LostAt
	if job.ClaimedAt != nil || row.SessionStartedAt == nil {
		return
	}
	job.PodNamespace, job.Pod, job.Pool = row.SessionNamespace, row.SessionPod, row.SessionPool
	job.ClaimedAt, job.Acknowledged = row.SessionClaimedAt, row.SessionAcknowledgedAt
	if row.SessionClaimedAt != nil { // the registration has opened it, and not the discovery of a busy runner
		job.RegisteredAt = row.SessionStartedAt
	}
}

// Job returns one job; admin.ErrNotFound.
func (s *Store) Job(ctx context.Context, id int64) (admin.StoredJob, error) {
	row, ok, err := jobInFull(ctx, s.queries(), id)
	switch {
	case err != nil:
		return admin.StoredJob{}, fmt.Errorf("reading a job: %w", err)
	case !ok:
		return admin.StoredJob{}, admin.ErrNotFound
	}
	return storedJob(row), nil
}

// JobEvidence reads what the ledger knows about why a job has no runner, as of one moment.
func (s *Store) JobEvidence(ctx context.Context, id int64) (admin.JobEvidence, error) {
	e := admin.JobEvidence{}
	err := s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		q := sqlcgen.New(tx)
		row, ok, err := jobInFull(ctx, q, id)
		if err != nil {
			return err
		}
		if !ok {
			e.Ended, err = q.TombstoneExists(ctx, id)
			return err
		}
		job := storedJob(row)
		e.Job, e.Claim = &job, fleet.ClaimState(row.Claim)
		if e.Account, err = s.account(ctx, q, row.AccountID); err != nil {
			return err
		}
		if e.Older, err = q.OlderInLane(ctx, sqlcgen.OlderInLaneParams{
			LabelKey: row.LabelKey, AccountID: row.AccountID, QueuedAt: row.QueuedAt, ID: row.ID, Most: adminapi.MaxQueued,
		}); err != nil {
			return err
		}
		refused, err := q.RefusalsOfJob(ctx, row.AccountID, row.Repository, row.ID)
		if err != nil {
			return err
		}
		for _, r := range refused {
			e.Refusals = append(e.Refusals, refusalOf(r))
		}
		running, err := q.RunningOfRepository(ctx, row.AccountID, row.Repository)
		e.OfRepository = map[fleet.Platform]int64{}
		for _, r := range running {
			e.OfRepository[fleet.Platform(r.Platform)] = r.Jobs
		}
		return err
	})
	if err != nil {
		return admin.JobEvidence{}, fmt.Errorf("reading what is known of a job: %w", err)
	}
	return e, nil
}
