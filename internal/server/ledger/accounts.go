package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

var _ admin.Store = (*Store)(nil)

// platforms are those that every account has a budget on.
func platforms() []fleet.Platform { return []fleet.Platform{fleet.Linux, fleet.MacOS} }

// UseDefaultLimits changes what accounts that appear from now on may use; call it before the store is used.
func (s *Store) UseDefaultLimits(defaults map[fleet.Platform]fleet.Limits) {
	s.defaults = defaults
}

// UseRepositoryCaps has caps per repository honoured; call it before the store is used. It is a setting and no row of the
// ledger: searches for a runner at GitHub must include repositories, also when the ledger was restored to a day before
// the first cap (EXCL-6).
func (s *Store) UseRepositoryCaps() { s.caps = true }

// repositoryCap is the cap that a row's limit stands for.
func (s *Store) repositoryCap(limit int64) int64 {
	if !s.caps {
		return 0
	}
	return limit
}

func (s *Store) defaultLimits(ctx context.Context, q *sqlcgen.Queries, accountID int64) error {
	for _, platform := range platforms() {
		l, set := s.defaults[platform]
		if !set {
			l = fleet.DefaultLimits(platform)
		}
		if err := q.EnsureLimits(ctx, sqlcgen.EnsureLimitsParams{
			AccountID: accountID, Platform: string(platform), MilliCpu: l.MilliCPU, MemoryMb: l.MemoryMB, Jobs: l.Jobs,
			RepositoryJobs: l.JobsPerRepository,
		}); err != nil {
			return err
		}
	}
	return nil
}

// Accounts returns a page ordered by login. The cursor is "login@id".
func (s *Store) Accounts(ctx context.Context, q admin.AccountQuery) ([]adminapi.Account, string, error) {
	arg := sqlcgen.AccountPageParams{Deleted: q.Deleted, Most: int32(q.Most)} //nolint:gosec // at most MaxPage
	if !storable(q.After) {
		return nil, "", &admin.InvalidError{Sentence: "after must be the value of next of the previous page"}
	}
	if at := strings.LastIndex(q.After, "@"); at >= 0 {
		id, err := strconv.ParseInt(q.After[at+1:], 10, 64)
		if err != nil {
			return nil, "", &admin.InvalidError{Sentence: "after must be the value of next of the previous page"}
		}
		arg.AfterLogin, arg.AfterID = q.After[:at], id
	} else if q.After != "" {
		arg.AfterLogin, arg.AfterID = q.After, math.MaxInt64
	}
	rows, err := s.queries().AccountPage(ctx, arg)
	if err != nil {
		return nil, "", fmt.Errorf("reading accounts: %w", err)
	}
	accounts, err := describe(ctx, s.queries(), rows)
	next := ""
	if len(rows) == q.Most && q.Most > 0 {
		last := rows[len(rows)-1]
		next = last.Login + "@" + strconv.FormatInt(last.ID, 10)
	}
	return accounts, next, err
}

// Account finds by login or "@id".
func (s *Store) Account(ctx context.Context, ref string) (adminapi.Account, error) {
	id, err := resolveAccount(ctx, s.queries(), ref)
	if err != nil {
		return adminapi.Account{}, err
	}
	account, err := s.account(ctx, s.queries(), id)
	if err != nil {
		return adminapi.Account{}, err
	}
	account.Refusals, err = refusalsOf(ctx, s.queries(), account)
	return account, err
}

func (s *Store) account(ctx context.Context, q *sqlcgen.Queries, id int64) (adminapi.Account, error) {
	row, ok, err := found(q.AccountByID(ctx, id))
	switch {
	case err != nil:
		return adminapi.Account{}, fmt.Errorf("reading an account: %w", err)
	case !ok:
		return adminapi.Account{}, admin.ErrNotFound
	}
	described, err := describe(ctx, q, []sqlcgen.Account{row})
	if err != nil {
		return adminapi.Account{}, err
	}
	return described[0], nil
}

// resolveAccount finds the account that a login names, one that is not deleted before one that is.
func resolveAccount(ctx context.Context, q *sqlcgen.Queries, ref string) (int64, error) {
	if text, ok := strings.CutPrefix(ref, "@"); ok {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, admin.ErrNotFound
		}
		return id, nil
	}
	if !storable(ref) {
		return 0, admin.ErrNotFound
	}
	rows, err := q.AccountsByLogin(ctx, ref)
	if err != nil {
		return 0, fmt.Errorf("finding an account: %w", err)
	}
	alive := slices.DeleteFunc(slices.Clone(rows), func(r sqlcgen.AccountsByLoginRow) bool { return r.DeletedAt != nil })
	if len(alive) > 0 {
		rows = alive
	}
	switch len(rows) {
	case 0:
		return 0, admin.ErrNotFound
	case 1:
		return rows[0].ID, nil
	default:
		return 0, &admin.ConflictError{Sentence: fmt.Sprintf(
			"login %s is ambiguous: accounts @%d and @%d have it, because one was renamed at GitHub. Use the ID",
			ref, rows[0].ID, rows[1].ID)}
	}
}

// storable: Postgres takes the text. What it does not take no row has, and asking for it would look like an outage.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// describe adds budgets, usage and the length of the queue.
func describe(ctx context.Context, q *sqlcgen.Queries, rows []sqlcgen.Account) ([]adminapi.Account, error) {
	ids := make([]int64, len(rows))
	at := make(map[int64]*adminapi.Account, len(rows))
	accounts := make([]adminapi.Account, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
		accounts[i] = adminapi.Account{
			ID: row.ID, Login: row.Login, Kind: row.Kind, State: accountState(row), InstallationID: deref(row.InstallationID),
			SuspendedByGitHub: row.Suspended, SuspendedByAdministrator: row.Paused, SuspensionReason: row.PausedReason,
			Budgets: []adminapi.Budget{}, Version: row.Version, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
			DeletedAt: row.DeletedAt,
		}
		at[row.ID] = &accounts[i]
	}
	limits, err := q.LimitsOf(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading limits: %w", err)
	}
	for _, l := range limits {
		a := at[l.AccountID]
		a.Budgets = append(a.Budgets, adminapi.Budget{Platform: l.Platform, Limits: adminapi.Limits{
			Jobs: l.Jobs, MilliCPU: l.MilliCpu, MemoryMB: l.MemoryMb, JobsPerRepository: l.RepositoryJobs,
		}})
	}
	used, err := q.UsageOfAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading usage: %w", err)
	}
	for _, u := range used {
		for i := range at[deref(u.AccountID)].Budgets {
			if b := &at[*u.AccountID].Budgets[i]; b.Platform == u.Platform {
				b.Usage = adminapi.Usage{Jobs: u.Jobs, MilliCPU: u.MilliCpu, MemoryMB: u.MemoryMb}
			}
		}
	}
	queued, err := q.QueuedOf(ctx, adminapi.MaxQueued, ids)
	if err != nil {
		return nil, fmt.Errorf("counting queued jobs: %w", err)
	}
	for _, n := range queued {
		at[n.AccountID].Queued, at[n.AccountID].Blocked = n.Queued, n.Held
	}
	return accounts, nil
}

func accountState(row sqlcgen.Account) adminapi.AccountState {
	switch {
	case row.DeletedAt != nil:
		return adminapi.AccountDeleted
	case row.InstallationID == nil:
		return adminapi.AccountUninstalled
	case row.Suspended || row.Paused:
		return adminapi.AccountSuspended
	default:
		return adminapi.AccountActive
	}
}

// changing is one change of one account, under its locks.
type changing struct {
	s       *Store
	q       *sqlcgen.Queries
	c       admin.Change
	account sqlcgen.Account
	limits  []sqlcgen.LockAccountLimitsRow
}

// change runs fn with the account locked: first its limits, as every batch does, so that no batch is under way beside it
// (CLAIM-5). fn reports whether it changed anything; then every replica reads the account's lanes again, at once.
func (s *Store) change(
	ctx context.Context, doing string, c admin.Change, fn func(ctx context.Context, t *changing) (bool, error),
) (int64, error) {
	var id int64
	err := s.inTx(ctx, doing, func(q *sqlcgen.Queries) error {
		var err error
		if id, err = resolveAccount(ctx, q, c.Account); err != nil {
			return err
		}
		t := &changing{s: s, q: q, c: c}
		if t.limits, err = q.LockAccountLimits(ctx, id); err != nil {
			return err
		}
		var ok bool
		if t.account, ok, err = found(q.LockAccount(ctx, id)); err != nil || !ok {
			if err == nil {
				err = admin.ErrNotFound
			}
			return err
		}
		if c.Version != 0 && c.Version != t.account.Version {
			return &admin.VersionError{Is: t.account.Version}
		}
		changed, err := fn(ctx, t)
		if err != nil || !changed {
			return err
		}
		return wakeAccount(ctx, q, id)
	})
	return id, err
}

// wakeAccount has every replica read the account's lanes again, and its installation asked again.
func wakeAccount(ctx context.Context, q *sqlcgen.Queries, id int64) error {
	if err := q.UnparkAccount(ctx, id); err != nil {
		return err
	}
	if err := q.NotifyAccount(ctx, strconv.FormatInt(id, 10)); err != nil {
		return err
	}
	return q.NotifyWork(ctx, "")
}

// audit writes who did it, in the change's own transaction.
func (t *changing) audit(ctx context.Context, action string, before, after any) error {
	return audit(ctx, t.q, t.account, t.c, action, before, after)
}

// maxLimit bounds a limit so that no sum of claims can overflow.
const maxLimit = 1 << 40

// ChangeLimits changes budgets on some platforms. Lowering one below its use ends nothing: it keeps new claims out.
func (s *Store) ChangeLimits(
	ctx context.Context, c admin.Change, changes map[string]adminapi.LimitsChange,
) (adminapi.Account, error) {
	for platform, change := range changes {
		if !slices.Contains(platforms(), fleet.Platform(platform)) {
			return adminapi.Account{}, &admin.InvalidError{Sentence: "unknown platform " + strconv.Quote(platform) + ": use linux or macos"}
		}
		if change == (adminapi.LimitsChange{}) {
			return adminapi.Account{}, &admin.InvalidError{Sentence: "no limit to change for " + platform + ": set jobs, milliCpu, memoryMb or jobsPerRepository"}
		}
		if n := change.JobsPerRepository; n != nil && *n > 0 && !s.caps {
			return adminapi.Account{}, &admin.ConflictError{Sentence: "limits per repository are disabled: start all servers with --repository-caps"}
		}
		for _, value := range []*int64{change.Jobs, change.MilliCPU, change.MemoryMB, change.JobsPerRepository} {
			if value != nil && (*value < 0 || *value > maxLimit) {
				return adminapi.Account{}, &admin.InvalidError{Sentence: "limits must be from 0 to " + strconv.Itoa(maxLimit)}
			}
		}
	}
	id, err := s.change(ctx, "changing limits", c, func(ctx context.Context, t *changing) (bool, error) {
		if t.account.DeletedAt != nil {
			return false, &admin.ConflictError{Sentence: t.account.Login + " is deleted: it gets the default limits when the App is installed there again"}
		}
		return t.setLimits(ctx, changes)
	})
	if err != nil {
		return adminapi.Account{}, err
	}
	return s.account(ctx, s.queries(), id)
}

func (t *changing) setLimits(ctx context.Context, changes map[string]adminapi.LimitsChange) (bool, error) {
	before, after := map[string]adminapi.Limits{}, map[string]adminapi.Limits{}
	for _, row := range t.limits {
		before[row.Platform] = adminapi.Limits{
			Jobs: row.Jobs, MilliCPU: row.MilliCpu, MemoryMB: row.MemoryMb, JobsPerRepository: row.RepositoryJobs,
		}
	}
	for platform, change := range changes {
		l := change.Apply(before[platform])
		if was, had := before[platform]; had && was == l {
			delete(before, platform)
			continue
		}
		after[platform] = l
		if err := t.q.SetLimits(ctx, sqlcgen.SetLimitsParams{
			AccountID: t.account.ID, Platform: platform, MilliCpu: l.MilliCPU, MemoryMb: l.MemoryMB, Jobs: l.Jobs, RepositoryJobs: l.JobsPerRepository,
		}); err != nil {
			return false, err
		}
	}
	for platform := range before {
		if _, changed := after[platform]; !changed {
			delete(before, platform)
		}
	}
	if len(after) == 0 {
		return false, nil
	}
	if err := t.q.TouchAccount(ctx, t.c.At, t.account.ID); err != nil {
		return false, err
	}
	if err := t.s.returnBlockedOf(ctx, t.q, t.account.ID); err != nil { // a cap that was raised
		return false, err
	}
	return true, t.audit(ctx, adminapi.ActionSetLimits, before, after)
}

// pauseState is what the audit log keeps of a suspension.
type pauseState struct {
	Suspended bool   `json:"suspendedByAdministrator"`
	Reason    string `json:"suspensionReason,omitempty"`
}

// Pause suspends the account, independently of GitHub, or resumes it. Running jobs finish normally.
func (s *Store) Pause(ctx context.Context, c admin.Change, paused bool) (adminapi.Account, error) {
	id, err := s.change(ctx, "suspending an account", c, func(ctx context.Context, t *changing) (bool, error) {
		if t.account.Paused == paused {
			return false, nil
		}
		after := pauseState{Suspended: paused}
		action := adminapi.ActionResume
		if paused {
			after.Reason, action = c.Reason, adminapi.ActionSuspend
		}
		if err := t.q.PauseAccount(ctx, sqlcgen.PauseAccountParams{Paused: paused, Reason: after.Reason, Now: c.At, ID: t.account.ID}); err != nil {
			return false, err
		}
		return true, t.audit(ctx, action, pauseState{t.account.Paused, t.account.PausedReason}, after)
	})
	if err != nil {
		return adminapi.Account{}, err
	}
	return s.account(ctx, s.queries(), id)
}

// DeleteAccount forgets an account of which nothing is live. What it has queued ends as stale, for good; its limits go;
// its history stays until retention takes it, or goes now with purge.
func (s *Store) DeleteAccount(ctx context.Context, c admin.Change, purge bool) error {
	_, err := s.change(ctx, "deleting an account", c, func(ctx context.Context, t *changing) (bool, error) {
		if t.account.InstallationID != nil {
			return false, &admin.ConflictError{Sentence: "the App is still installed at " + t.account.Login +
				", so its next job would recreate it: uninstall the App there first, or suspend the account instead"}
		}
		live, err := t.q.LiveClaimsOfAccount(ctx, &t.account.ID) // after the locks: no batch can add one
		if err != nil {
			return false, err
		}
		if live > 0 {
			return false, &admin.ConflictError{Sentence: fmt.Sprintf(
				"%d jobs of %s are still running: delete it when they complete", live, t.account.Login)}
		}
		if err := t.delete(ctx, purge); err != nil {
			return false, err
		}
		return true, nil
	})
	return err
}

func (t *changing) delete(ctx context.Context, purge bool) error {
	id := t.account.ID
	action := adminapi.ActionDelete
	steps := []func() error{
		func() error { return t.q.BuryJobsOfAccount(ctx, t.c.At, id) },
		func() error { return t.q.DeleteLanes(ctx, id) },
		func() error { return t.q.DeleteLimits(ctx, id) },
		func() error { return t.q.MarkAccountDeleted(ctx, &t.c.At, id) },
	}
	if purge {
		action = adminapi.ActionPurge
		steps = append(steps,
			func() error { return t.q.BuryAllJobsOfAccount(ctx, t.c.At, id) },
			func() error { return t.q.PurgeSessions(ctx, id) },
			func() error { return t.q.PurgeRegistrations(ctx, id) },
			func() error { return t.q.DisownClaims(ctx, &id) },
			func() error { return t.q.PurgeAccount(ctx, id) },
		)
	} else if t.account.DeletedAt != nil {
		return nil // it was deleted before
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return t.audit(ctx, action, map[string]any{"login": t.account.Login, "kind": t.account.Kind}, nil)
}

// ForgetDeletedAccounts removes accounts that were deleted before then and of which retention has left nothing.
func (s *Store) ForgetDeletedAccounts(ctx context.Context, before time.Time, most int) (int64, error) {
	n, err := s.queries().ForgetDeletedAccounts(ctx, before, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return 0, fmt.Errorf("forgetting deleted accounts: %w", err)
	}
	return n, nil
}
