package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// LabelSetsOfLogins lists the label sets that have a lane of each account. It reads those of no other. It does not wait out an outage.
func (s *Store) LabelSetsOfLogins(ctx context.Context, logins []string) (map[string][]dispatch.LabelSet, error) {
	rows, err := s.queries().LabelSetsOfLogins(ctx, logins)
	if err != nil {
		return nil, err
	}
	sets := map[string][]dispatch.LabelSet{}
	for _, row := range rows {
		if labels, ok := dispatch.LabelsOf(row.LabelKey); ok {
			sets[row.Login] = append(sets[row.Login], dispatch.LabelSet{Key: row.LabelKey, Labels: labels})
		}
	}
	return sets, nil
}

// TargetJobs reads the jobs of scopes, and the state of single jobs, as of one moment. Its cost depends on the jobs that it returns, not on
// those of others. It does not wait out an outage.
func (s *Store) TargetJobs(ctx context.Context, scopes []dispatch.DemandScope, seen []int64) (dispatch.TargetJobs, error) {
	out := dispatch.TargetJobs{Sees: make([]bool, len(scopes))}
	err := s.pool.inSnapshot(ctx, func(tx sqlcgen.DBTX) error {
		r := targetRead{q: sqlcgen.New(tx), out: &out}
		if err := r.places(ctx, scopes); err != nil {
			return err
		}
		if err := r.jobs(ctx); err != nil {
			return err
		}
		return r.seen(ctx, seen)
	})
	if err != nil {
		return dispatch.TargetJobs{}, fmt.Errorf("reading the jobs of targets: %w", err)
	}
	return out, nil
}

// targetRead is one reading in its transaction.
type targetRead struct {
	q            *sqlcgen.Queries
	out          *dispatch.TargetJobs
	accounts     sqlcgen.DemandOfAccountsParams
	repositories sqlcgen.DemandOfRepositoriesParams
}

// places finds out which accounts the scopes are, and which of them GitHub sends events of.
func (r *targetRead) places(ctx context.Context, scopes []dispatch.DemandScope) error {
	logins, names := []string{}, []string{}
	for _, scope := range scopes {
		logins, names = append(logins, scope.Login), append(names, scope.Repository)
	}
	found, err := r.q.AccountsOfLogins(ctx, logins)
	if err != nil {
		return err
	}
	accounts, ids := map[string][]int64{}, []int64{}
	for _, account := range found {
		accounts[account.Login] = append(accounts[account.Login], account.ID)
		ids = append(ids, account.ID)
	}
	rows, err := r.q.RepositoriesTaken(ctx, ids, names)
	if err != nil {
		return err
	}
	taken := map[sqlcgen.RepositoriesTakenRow]bool{}
	for _, row := range rows {
		taken[row] = true
	}
	for i, scope := range scopes {
		for _, account := range accounts[scope.Login] {
			if taken[sqlcgen.RepositoriesTakenRow{AccountID: account, Repository: scope.Repository}] {
				continue
			}
			r.out.Sees[i] = true
			r.ask(int64(i), account, scope)
		}
	}
	return nil
}

func (r *targetRead) ask(i, account int64, scope dispatch.DemandScope) {
	for _, key := range scope.LabelKeys {
		if scope.Repository == "" {
			r.accounts.Scopes, r.accounts.LabelKeys = append(r.accounts.Scopes, i), append(r.accounts.LabelKeys, key)
			r.accounts.Accounts, r.accounts.Most = append(r.accounts.Accounts, account), append(r.accounts.Most, scope.Most)
			continue
		}
		to := &r.repositories
		to.Scopes, to.LabelKeys, to.Accounts = append(to.Scopes, i), append(to.LabelKeys, key), append(to.Accounts, account)
		to.Repositories, to.Most = append(to.Repositories, scope.Repository), append(to.Most, scope.Most)
	}
}

func (r *targetRead) jobs(ctx context.Context) error {
	if len(r.accounts.Scopes) > 0 {
		rows, err := r.q.DemandOfAccounts(ctx, r.accounts)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r.add(row.Scope, row.State, row.ID, row.Repository, row.RunnerName, row.QueuedAt, row.UpdatedAt)
		}
	}
	if len(r.repositories.Scopes) == 0 {
		return nil
	}
	rows, err := r.q.DemandOfRepositories(ctx, r.repositories)
	for _, row := range rows {
		r.add(row.Scope, row.State, row.ID, row.Repository, row.RunnerName, row.QueuedAt, row.UpdatedAt)
	}
	return err
}

func (r *targetRead) add(scope int64, state string, id int64, repository, runner string, queuedAt, updatedAt time.Time) {
	r.out.Jobs = append(r.out.Jobs, dispatch.TargetJob{
		Scope: int(scope), Running: fleet.JobState(state) == fleet.JobExecuting,
		Job: runnerapi.DemandJob{ID: id, Repository: repository, RunnerName: runner, QueuedAt: queuedAt, Since: updatedAt},
	})
}

func (r *targetRead) seen(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := r.q.JobsSeen(ctx, ids)
	for _, row := range rows {
		r.out.Seen = append(r.out.Seen, dispatch.SeenJob{
			ID: row.ID, State: fleet.JobState(row.State), Conclusion: row.Conclusion, LabelKey: row.LabelKey,
		})
	}
	return err
}
