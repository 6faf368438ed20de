package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

var _ installations.RepositoryStore = (*Store)(nil)

// ReadableAccounts lists accounts whose installation GitHub lets list its repositories.
func (s *Store) ReadableAccounts(ctx context.Context) ([]dispatch.Account, error) {
	rows, err := s.queries().ReadableAccounts(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing accounts: %w", err)
	}
	out := make([]dispatch.Account, len(rows))
	for i, row := range rows {
		out[i] = accountOf(row.ID, row.Login, row.Kind, deref(row.InstallationID))
	}
	return out, nil
}

// SyncRepositories corrects the ledger's repositories by GitHub's list of what an account's installation may access. A repository that was
// added or renamed without an event is corrected at once. One that is not in the list is removed only if the list is whole and the one
// before lacked it too, because a list may be read while it changes. Events after the start of the reading take precedence.
func (s *Store) SyncRepositories(
	ctx context.Context, a dispatch.Account, began, now time.Time, list []fleet.Repository, whole bool,
) (dispatch.RepositorySync, error) {
	var did dispatch.RepositorySync
	if len(list) == 0 { // no installation can see nothing at all
		return did, nil
	}
	err := s.inTx(ctx, "comparing the repositories of "+a.Login, func(q *sqlcgen.Queries) error {
		did = dispatch.RepositorySync{}
		row, known, err := found(q.LockAccount(ctx, a.ID))
		if err != nil || !known || deref(row.InstallationID) != a.InstallationID ||
			row.InstallationChangedAt != nil && !row.InstallationChangedAt.Before(began) {
			return err
		}
		y := newRepositorySync(q, a, began, now, list)
		y.t = installationTx{s: s, q: q, at: now, why: "GitHub's list of repositories"}
		y.did = &did
		return y.apply(ctx, whole)
	})
	return did, err
}

// repositorySync is one account's list beside what is known, in a transaction.
type repositorySync struct {
	t          installationTx
	q          *sqlcgen.Queries
	account    dispatch.Account
	began, now time.Time
	byID       map[int64]string
	byName     map[string]fleet.Repository // by the name in lower case
	did        *dispatch.RepositorySync
}

func newRepositorySync(q *sqlcgen.Queries, a dispatch.Account, began, now time.Time, list []fleet.Repository) *repositorySync {
	y := &repositorySync{
		q: q, account: a, began: began, now: now, byID: map[int64]string{}, byName: map[string]fleet.Repository{},
	}
	for _, one := range list {
		if one.ID != 0 {
			y.byID[one.ID] = one.Name
		}
		y.byName[strings.ToLower(one.Name)] = one
	}
	return y
}

func (y *repositorySync) apply(ctx context.Context, whole bool) error {
	known, err := y.q.RepositoriesOfAccount(ctx, y.account.ID)
	if err != nil {
		return err
	}
	removed, err := y.q.RemovedOfAccount(ctx, y.account.ID)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	var back []string
	for _, r := range removed {
		gone[r.Repository] = true
		if _, listed := y.byName[strings.ToLower(r.Repository)]; listed && r.RemovedAt.Before(y.began) {
			back = append(back, r.Repository)
		}
	}
	if err := y.tell(ctx, dispatch.RepositoriesAdded, back); err != nil {
		return err
	}
	y.did.Restored = len(back)
	var seen, missing, lost []string
	for _, r := range known {
		name, listed := y.byID[r.RepositoryID]
		switch {
		case r.RepositoryID != 0 && listed && name != r.Name:
			if err := y.rename(ctx, fleet.Repository{Name: name, ID: r.RepositoryID}, r.Name); err != nil {
				return err
			}
			y.did.Renamed++
		case r.RepositoryID != 0 && listed, r.RepositoryID == 0 && y.byName[strings.ToLower(r.Name)].Name != "":
			seen = append(seen, r.Name)
		case !whole || gone[r.Name]:
		case r.MissingAt == nil:
			missing = append(missing, r.Name)
		case r.MissingAt.Before(y.began):
			lost = append(lost, r.Name)
		}
	}
	if err := y.q.SeeRepositories(ctx, y.account.ID, orEmpty(seen)); err != nil {
		return err
	}
	if err := y.q.MissRepositories(ctx, &y.now, y.account.ID, orEmpty(missing)); err != nil {
		return err
	}
	y.did.Missing, y.did.Removed = len(missing), len(lost)
	return y.tell(ctx, dispatch.RepositoriesRemoved, lost)
}

// tell does what the webhook that never came would have done.
func (y *repositorySync) tell(ctx context.Context, action string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return y.t.repositories(ctx, dispatch.Installation{Action: action, Account: y.account, Repositories: names})
}

func (y *repositorySync) rename(ctx context.Context, is fleet.Repository, was string) error {
	if err := y.q.NameRepository(ctx, sqlcgen.NameRepositoryParams{
		Name: is.Name, AccountID: y.account.ID, Now: y.began, RepositoryID: is.ID,
	}); err != nil {
		return err
	}
	return follow(ctx, y.q, y.account.ID, is, []string{was})
}
