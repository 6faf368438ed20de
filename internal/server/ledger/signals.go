package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Backlog reads what waits in the lanes of these label sets, and what their accounts may still use, as of one moment.
// It does not wait out an outage: the caller learns at once that nothing is known.
func (s *Store) Backlog(
	ctx context.Context, labelKeys []string, look func(dispatch.Backlog) []dispatch.Look,
) (dispatch.Backlog, error) {
	var b dispatch.Backlog
	err := s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		r := backlogRead{s: s, q: sqlcgen.New(tx), out: &b}
		for _, step := range []func(context.Context) error{
			func(ctx context.Context) error { return r.lanes(ctx, labelKeys) }, r.budgets, r.runners,
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return r.jobs(ctx, look(b))
	})
	if err != nil {
		return dispatch.Backlog{}, fmt.Errorf("reading the backlog: %w", err)
	}
	return b, nil
}

// backlogRead is one reading in its transaction.
type backlogRead struct {
	s   *Store
	q   *sqlcgen.Queries
	out *dispatch.Backlog
}

func (r *backlogRead) lanes(ctx context.Context, labelKeys []string) error {
	rows, err := r.q.WaitingLanes(ctx, labelKeys)
	for _, row := range rows {
		r.out.Lanes = append(r.out.Lanes, dispatch.WaitingLane{
			LabelKey: row.LabelKey, Suspended: row.Suspended || row.InstallationID == nil,
			Account: dispatch.Account{
				ID: row.AccountID, Login: row.Login, User: row.Kind == "User", InstallationID: deref(row.InstallationID),
			},
		})
	}
	return err
}

func (r *backlogRead) budgets(ctx context.Context) error {
	accounts := []int64{}
	for _, lane := range r.out.Lanes { // sorted by account
		if n := len(accounts); n == 0 || accounts[n-1] != lane.Account.ID {
			accounts = append(accounts, lane.Account.ID)
		}
	}
	limits, err := r.q.LimitsOfAccounts(ctx, accounts)
	if err != nil {
		return err
	}
	used, err := r.q.UsageOfAccounts(ctx, accounts)
	if err != nil {
		return err
	}
	r.out.Limits = make(map[dispatch.Budget]fleet.Limits, len(limits))
	for _, l := range limits {
		r.out.Limits[dispatch.Budget{AccountID: l.AccountID, Platform: fleet.Platform(l.Platform)}] = fleet.Limits{
			MilliCPU: l.MilliCpu, MemoryMB: l.MemoryMb, Jobs: l.Jobs, JobsPerRepository: r.s.repositoryCap(l.RepositoryJobs),
		}
	}
	if err := r.repositories(ctx, limits); err != nil {
		return err
	}
	r.out.Usage = make(map[dispatch.Budget]fleet.Usage, len(used))
	for _, u := range used {
		r.out.Usage[dispatch.Budget{AccountID: deref(u.AccountID), Platform: fleet.Platform(u.Platform)}] = fleet.Usage{
			MilliCPU: u.MilliCpu, MemoryMB: u.MemoryMb, Jobs: u.Jobs,
		}
	}
	return nil
}

// repositories reads what runs of each repository, of accounts that have a cap only.
func (r *backlogRead) repositories(ctx context.Context, limits []sqlcgen.AccountLimit) error {
	var capped []int64
	for _, l := range limits {
		if r.s.repositoryCap(l.RepositoryJobs) > 0 {
			capped = append(capped, l.AccountID)
		}
	}
	if len(capped) == 0 {
		return nil
	}
	rows, err := r.q.RepositoryUsageOfAccounts(ctx, capped)
	r.out.Repositories = make(map[dispatch.RepositoryBudget]int64, len(rows))
	for _, row := range rows {
		r.out.Repositories[dispatch.RepositoryBudget{
			Budget:     dispatch.Budget{AccountID: deref(row.AccountID), Platform: fleet.Platform(row.Platform)},
			Repository: row.Repository,
		}] = row.Jobs
	}
	return err
}

func (r *backlogRead) runners(ctx context.Context) error {
	rows, err := r.q.PoolRunners(ctx)
	r.out.Runners = make(map[dispatch.PoolRef]dispatch.Runners, len(rows))
	for _, row := range rows {
		r.out.Runners[dispatch.PoolRef{Namespace: row.Namespace, Name: row.Pool}] = dispatch.Runners{
			Occupied: row.Occupied, Claimed: row.Claimed,
		}
	}
	return err
}

// jobs reads the lanes, in their order, within the given bounds.
func (r *backlogRead) jobs(ctx context.Context, looks []dispatch.Look) error {
	if len(looks) == 0 {
		return nil
	}
	var arg sqlcgen.LookIntoLanesParams
	at := make(map[lane]int, len(looks))
	for i, look := range looks {
		l := r.out.Lanes[i]
		at[lane{l.LabelKey, l.Account.ID}] = i
		arg.LabelKeys = append(arg.LabelKeys, l.LabelKey)
		arg.Accounts = append(arg.Accounts, l.Account.ID)
		arg.Counts = append(arg.Counts, look.Count)
		arg.Ages = append(arg.Ages, look.Ages)
		arg.Named = append(arg.Named, look.Repositories)
		arg.Lasts = append(arg.Lasts, look.Last)
	}
	rows, err := r.q.LookIntoLanes(ctx, arg)
	for _, row := range rows {
		l := &r.out.Lanes[at[lane{row.LabelKey, row.AccountID}]]
		l.Jobs, l.Blocked, l.Refused, l.Repositories = row.Jobs, row.Held, row.Refused, row.Repositories
		if row.LastID != 0 {
			l.Last = dispatch.JobAge{ID: row.LastID, QueuedAt: row.LastQueuedAt}
		}
		l.Oldest = make([]dispatch.JobAge, len(row.Ids))
		for i, id := range row.Ids {
			l.Oldest[i] = dispatch.JobAge{ID: id, QueuedAt: row.QueuedAt[i]}
		}
	}
	return err
}

// SessionChanges returns how the number of open sessions of each pool changes in each of the minutes.
func (s *Store) SessionChanges(ctx context.Context, since time.Time, minutes int) ([]dispatch.SessionChange, error) {
	rows, err := s.queries().SessionChanges(ctx, since, int64(minutes))
	if err != nil {
		return nil, fmt.Errorf("reading the sessions of the last %d minutes: %w", minutes, err)
	}
	changes := make([]dispatch.SessionChange, len(rows))
	for i, row := range rows {
		changes[i] = dispatch.SessionChange{
			Pool: dispatch.PoolRef{Namespace: row.Namespace, Name: row.Pool}, Minute: int(row.Minute), By: int(row.Change),
		}
	}
	return changes, nil
}

// ProvenEnds lists the pods whose work was known to be over, other than from the pod, at that time; the oldest first.
func (s *Store) ProvenEnds(ctx context.Context, before time.Time) ([]dispatch.ProvenEnd, error) {
	rows, err := s.queries().ProvenEnds(ctx, &before)
	if err != nil {
		return nil, fmt.Errorf("reading whose work is known to be over: %w", err)
	}
	ends := make([]dispatch.ProvenEnd, len(rows))
	for i, row := range rows {
		ends[i] = dispatch.ProvenEnd{
			Pod: dispatch.Pod{
				Namespace: row.Namespace, Name: row.PodName, UID: row.PodUid,
				Pool: dispatch.PoolRef{Namespace: row.Namespace, Name: row.Pool},
			},
			Proof: row.Proof,
		}
	}
	return ends, nil
}
