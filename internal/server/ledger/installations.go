package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// RecordInstallation notes an installation event.
func (s *Store) RecordInstallation(ctx context.Context, d dispatch.Delivery, in dispatch.Installation) (bool, error) {
	fresh := false
	err := s.inTx(ctx, "recording an installation", func(q *sqlcgen.Queries) error {
		var err error
		if fresh, err = recordDelivery(ctx, q, d); err != nil || !fresh {
			return err
		}
		t := installationTx{s: s, q: q, at: d.At, why: "webhook " + in.Action}
		in := in // a retry finds the holder again
		if in.Account.ID == 0 {
			var known bool
			if in.Account, known, err = t.holder(ctx, in); err != nil || !known {
				return err
			}
		}
		switch in.Action {
		case "deleted":
			return t.end(ctx, in.Account)
		case dispatch.RepositoriesRemoved, dispatch.RepositoriesAdded:
			return t.repositories(ctx, in)
		}
		ended, err := q.InstallationEnded(ctx, in.Account.InstallationID)
		if err != nil {
			return err
		}
		if ended { // its start is reported after its end
			return t.orphan(ctx, in.Account)
		}
		return t.put(ctx, in.Account, in.Suspended || in.Action == "suspend")
	})
	return fresh && err == nil, err
}

// holder is whose installation it is, where GitHub names no account. If that is not known, all that is left to note is an end.
func (t installationTx) holder(ctx context.Context, in dispatch.Installation) (dispatch.Account, bool, error) {
	id := in.Account.InstallationID
	if err := t.q.LockInstallation(ctx, id); err != nil {
		return in.Account, false, fmt.Errorf("locking installation %d: %w", id, err)
	}
	holders, err := t.q.LockInstallationLimits(ctx, &id, 0)
	if err != nil {
		return in.Account, false, err
	}
	if len(holders) == 0 {
		if in.Action == "deleted" {
			err = t.q.EndInstallation(ctx, id, t.at)
		}
		return in.Account, false, err
	}
	row, known, err := found(t.q.LockAccount(ctx, holders[0]))
	return accountOf(row.ID, row.Login, row.Kind, id), known, err
}

func kind(a dispatch.Account) string {
	if a.User {
		return "User"
	}
	return "Organization"
}

// installationTx is what GitHub says of one or several installations, in one transaction.
type installationTx struct {
	s   *Store
	q   *sqlcgen.Queries
	at  time.Time
	why string
}

// lock takes the installation, then the account, after its limits and those of the installation's former holder: as every
// batch takes limits first, none is under way beside the change, and none that comes after misses it (CLAIM-5).
func (t installationTx) lock(ctx context.Context, a dispatch.Account) (sqlcgen.Account, bool, error) {
	if err := t.q.LockInstallation(ctx, a.InstallationID); err != nil {
		return sqlcgen.Account{}, false, fmt.Errorf("locking installation %d: %w", a.InstallationID, err)
	}
	if _, err := t.q.LockInstallationLimits(ctx, &a.InstallationID, a.ID); err != nil {
		return sqlcgen.Account{}, false, err
	}
	return found(t.q.LockAccount(ctx, a.ID))
}

// put writes what the account's installation is now, and wakes its lanes.
func (t installationTx) put(ctx context.Context, a dispatch.Account, suspended bool) error {
	before, known, err := t.lock(ctx, a)
	if err != nil {
		return err
	}
	if err := t.q.ReleaseInstallation(ctx, t.at, &a.InstallationID, a.ID); err != nil {
		return err
	}
	if err := t.q.UpsertInstallation(ctx, sqlcgen.UpsertInstallationParams{
		ID: a.ID, Login: a.Login, Kind: kind(a), InstallationID: &a.InstallationID, Suspended: suspended, Now: t.at,
	}); err != nil {
		return err
	}
	if err := t.s.defaultLimits(ctx, t.q, a.ID); err != nil {
		return err
	}
	reinstalled := !known || deref(before.InstallationID) != a.InstallationID
	if reinstalled { // it states again which repositories it has
		if err := t.restoreAll(ctx, a.ID); err != nil {
			return err
		}
	}
	after := sqlcgen.Account{ID: a.ID, Login: a.Login, InstallationID: &a.InstallationID, Suspended: suspended}
	if reinstalled {
		if err := t.audit(ctx, adminapi.ActionInstall, before, after, known); err != nil {
			return err
		}
	}
	if suspended != before.Suspended {
		action := adminapi.ActionGitResume
		if suspended {
			action = adminapi.ActionGitSuspend
		}
		if err := t.audit(ctx, action, before, after, known); err != nil {
			return err
		}
	}
	return wakeAccount(ctx, t.q, a.ID)
}

// end records that an installation is gone; GitHub does not use its id again.
func (t installationTx) end(ctx context.Context, a dispatch.Account) error {
	if err := t.q.EndInstallation(ctx, a.InstallationID, t.at); err != nil {
		return err
	}
	return t.remove(ctx, a)
}

func (t installationTx) remove(ctx context.Context, a dispatch.Account) error {
	before, known, err := t.lock(ctx, a)
	if err != nil || !known {
		return err
	}
	n, err := t.q.RemoveInstallation(ctx, t.at, a.ID, &a.InstallationID)
	if err != nil || n == 0 {
		return err
	}
	after := before
	after.InstallationID, after.Suspended = nil, false
	return t.audit(ctx, adminapi.ActionUninstall, before, after, true)
}

func (t installationTx) orphan(ctx context.Context, a dispatch.Account) error {
	if err := t.q.EnsureOrphan(ctx, sqlcgen.EnsureOrphanParams{ID: a.ID, Login: a.Login, Kind: kind(a), Now: t.at}); err != nil {
		return err
	}
	return t.s.defaultLimits(ctx, t.q, a.ID)
}

// repositories records which repositories an installation lost or gained. Jobs of lost ones are held until they are returned.
func (t installationTx) repositories(ctx context.Context, in dispatch.Installation) error {
	account, known, err := found(t.q.LockAccount(ctx, in.Account.ID))
	if err != nil || !known || deref(account.InstallationID) != in.Account.InstallationID {
		return err
	}
	action := adminapi.ActionReposGiven
	names, err := t.concerned(ctx, account.ID, in)
	if err != nil {
		return err
	}
	for _, repository := range names {
		if in.Action == dispatch.RepositoriesAdded {
			err = t.restore(ctx, account.ID, repository)
		} else {
			action = adminapi.ActionReposTaken
			if err = t.q.RemoveRepository(ctx, account.ID, repository, t.at); err == nil {
				err = t.q.HoldRemoved(ctx, t.at, account.ID, repository)
			}
		}
		if err != nil {
			return err
		}
	}
	return audit(ctx, t.q, account, t.change(), action, nil, map[string]any{"repositories": in.Repositories})
}

// manyRepositories is the size from which a list of repositories is first compared with those that were taken, in one query: an organization may give the App thousands at once, and GitHub waits ten seconds.
const manyRepositories = 100

// concerned are the repositories of an event that there is something to do about.
func (t installationTx) concerned(ctx context.Context, accountID int64, in dispatch.Installation) ([]string, error) {
	if in.Action != dispatch.RepositoriesAdded || len(in.Repositories) < manyRepositories {
		return in.Repositories, nil
	}
	removed, err := t.q.RemovedOfAccount(ctx, accountID)
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}
	for _, name := range in.Repositories {
		given[name] = true
	}
	var names []string
	for _, row := range removed {
		if given[row.Repository] {
			names = append(names, row.Repository)
		}
	}
	return names, nil
}

func (t installationTx) restore(ctx context.Context, accountID int64, repository string) error {
	if err := t.q.RestoreRepository(ctx, accountID, repository); err != nil {
		return err
	}
	return returnRepository(ctx, t.q, accountID, repository, blockedByRemoval, 1<<31-1)
}

// restoreAll brings back every repository of the account.
func (t installationTx) restoreAll(ctx context.Context, accountID int64) error {
	repositories, err := t.q.RestoreRepositories(ctx, accountID)
	if err != nil {
		return err
	}
	for _, repository := range repositories {
		if err := returnRepository(ctx, t.q, accountID, repository, blockedByRemoval, 1<<31-1); err != nil {
			return err
		}
	}
	return nil
}

// installationState is what the audit log keeps of an installation.
type installationState struct {
	Login          string `json:"login"`
	InstallationID int64  `json:"installationId,omitempty"`
	Suspended      bool   `json:"suspendedByGithub"`
	Deleted        bool   `json:"deleted,omitempty"`
}

func stateOf(a sqlcgen.Account) installationState {
	return installationState{a.Login, deref(a.InstallationID), a.Suspended, a.DeletedAt != nil}
}

func (t installationTx) change() admin.Change {
	return admin.Change{Actor: adminapi.ActorGitHub, Reason: t.why, At: t.at}
}

func (t installationTx) audit(ctx context.Context, action string, before, after sqlcgen.Account, known bool) error {
	var was any
	if known {
		was = stateOf(before)
	}
	return audit(ctx, t.q, after, t.change(), action, was, stateOf(after))
}

// SyncInstallations corrects the ledger by GitHub's own list, whose reading began at that time: newer changes are kept, and an account is
// uninstalled only when two lists in succession lack it. An empty list is ignored: a wrong key or a wrong App returns one.
//
// Each account that differs is a transaction of its own, so that no dispatch waits for all of them; an error in one does not prevent the
// correction of the others.
func (s *Store) SyncInstallations(
	ctx context.Context, began, now time.Time, list []dispatch.Installation,
) (dispatch.InstallationSync, error) {
	var out dispatch.InstallationSync
	if len(list) == 0 {
		return out, nil
	}
	rows, err := s.queries().InstalledAccounts(ctx)
	if err != nil {
		return out, fmt.Errorf("comparing installations: %w", err)
	}
	sync := installationSync{s: s, began: began, now: now, out: &out}
	listed := map[int64]bool{}
	installed := map[int64]sqlcgen.Account{}
	for _, row := range rows {
		installed[row.ID] = row
	}
	var errs []error
	for _, in := range list {
		listed[in.Account.ID] = true
		if row, known := installed[in.Account.ID]; !known || !same(row, in) {
			errs = append(errs, sync.see(ctx, in))
		}
	}
	errs = append(errs, s.queries().SeeInstallations(ctx, slices.Collect(maps.Keys(listed))))
	for _, row := range rows {
		if !listed[row.ID] {
			errs = append(errs, sync.miss(ctx, row))
		}
	}
	return out, errors.Join(errs...)
}

type installationSync struct {
	s          *Store
	began, now time.Time
	out        *dispatch.InstallationSync
}

// same: the ledger has the account as GitHub's list has it.
func same(row sqlcgen.Account, in dispatch.Installation) bool {
	return deref(row.InstallationID) == in.Account.InstallationID && row.Suspended == in.Suspended &&
		row.Login == in.Account.Login && row.Kind == kind(in.Account)
}

// newer: what is known of the account was reported after the list was begun.
func (y installationSync) newer(row sqlcgen.Account) bool {
	return row.InstallationChangedAt != nil && !row.InstallationChangedAt.Before(y.began)
}

// locked runs fn with the account locked, in a transaction, and counts what it did once that is committed.
func (y installationSync) locked(
	ctx context.Context, a dispatch.Account,
	fn func(t installationTx, row sqlcgen.Account, known bool, did *dispatch.InstallationSync) error,
) error {
	var did dispatch.InstallationSync
	err := y.s.inTx(ctx, "comparing the installation of "+a.Login, func(q *sqlcgen.Queries) error {
		did = dispatch.InstallationSync{}
		t := installationTx{s: y.s, q: q, at: y.now, why: "GitHub's list of installations"}
		row, known, err := t.lock(ctx, a)
		if err != nil {
			return err
		}
		return fn(t, row, known, &did)
	})
	if err != nil {
		return err
	}
	y.out.Corrected += did.Corrected
	y.out.Missing += did.Missing
	y.out.Removed += did.Removed
	return nil
}

func (y installationSync) see(ctx context.Context, in dispatch.Installation) error {
	return y.locked(ctx, in.Account, func(t installationTx, row sqlcgen.Account, known bool, did *dispatch.InstallationSync) error {
		if known && (y.newer(row) || same(row, in)) {
			return nil
		}
		ended, err := t.q.InstallationEnded(ctx, in.Account.InstallationID)
		if err != nil || ended {
			return err
		}
		did.Corrected++
		return t.put(ctx, in.Account, in.Suspended)
	})
}

func (y installationSync) miss(ctx context.Context, was sqlcgen.Account) error {
	a := dispatch.Account{ID: was.ID, Login: was.Login, InstallationID: deref(was.InstallationID)}
	return y.locked(ctx, a, func(t installationTx, row sqlcgen.Account, known bool, did *dispatch.InstallationSync) error {
		switch {
		case !known || y.newer(row) || deref(row.InstallationID) != a.InstallationID:
			return nil
		case row.InstallationMissingAt == nil:
			did.Missing++
			return t.q.MissInstallation(ctx, &t.at, row.ID)
		}
		did.Removed++
		return t.remove(ctx, a)
	})
}

// ensureParents creates the account and the label set that the job's row refers to; a workflow_job event may arrive
// before, or without, its installation event.
func (s *Store) ensureParents(
	ctx context.Context, q *sqlcgen.Queries, ev dispatch.JobEvent, key string, now time.Time,
) error {
	if !s.remembers(key) {
		if err := q.EnsureLabelSet(ctx, key, orEmpty(ev.Labels)); err != nil {
			return err
		}
	}
	known, err := q.AccountIsKnown(ctx, ev.Account.ID, ev.Account.Login, ev.Account.InstallationID)
	if err != nil || known {
		return err
	}
	buried, err := q.TombstoneExists(ctx, ev.JobID)
	if err != nil {
		return err
	}
	ended, err := q.InstallationEnded(ctx, ev.Account.InstallationID)
	if err != nil || ended && buried { // CLAIM-4: nothing will refer to the account, which may have been purged
		return err
	}
	return s.ensureAccount(ctx, q, ev.Account, "job "+strconv.FormatInt(ev.JobID, 10), now)
}

// ensureAccount creates an account without an installation event, and notes its installation.
func (s *Store) ensureAccount(ctx context.Context, q *sqlcgen.Queries, a dispatch.Account, why string, now time.Time) error {
	known, err := q.AccountIsKnown(ctx, a.ID, a.Login, a.InstallationID)
	if err != nil || known {
		return err
	}
	t := installationTx{s: s, q: q, at: now, why: why}
	ended, err := q.InstallationEnded(ctx, a.InstallationID)
	if err != nil {
		return err
	}
	if ended { // a late event of a deleted installation restores nothing
		return t.orphan(ctx, a)
	}
	return t.ensure(ctx, a)
}

// ensure fills in what an event of a job says of its account. It does not say whether the installation is suspended.
func (t installationTx) ensure(ctx context.Context, a dispatch.Account) error {
	before, known, err := t.lock(ctx, a)
	if err != nil {
		return err
	}
	if err := t.q.ReleaseInstallation(ctx, t.at, &a.InstallationID, a.ID); err != nil {
		return err
	}
	if err := t.q.EnsureAccount(ctx, sqlcgen.EnsureAccountParams{
		ID: a.ID, Login: a.Login, Kind: kind(a), InstallationID: &a.InstallationID, Now: t.at,
	}); err != nil {
		return fmt.Errorf("noting account %d: %w", a.ID, err)
	}
	if err := t.s.defaultLimits(ctx, t.q, a.ID); err != nil {
		return err
	}
	if !known || deref(before.InstallationID) != a.InstallationID {
		if err := t.restoreAll(ctx, a.ID); err != nil {
			return err
		}
		after := sqlcgen.Account{ID: a.ID, Login: a.Login, InstallationID: &a.InstallationID}
		if err := t.audit(ctx, adminapi.ActionInstall, before, after, known); err != nil {
			return err
		}
	}
	return wakeAccount(ctx, t.q, a.ID) // its lanes may have been parked while it had no installation
}
