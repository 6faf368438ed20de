package installations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// RepositoriesEvery is how often GitHub is asked what each installation may see: one request per hundred repositories, which
// costs nothing of the rate limit as long as the answer is the same.
const RepositoriesEvery = time.Hour

// mostPages bounds the reading of one installation's list: 5,000 repositories. Of a longer one only what is in it counts.
const mostPages = 50

// RepositoryForge is GitHub.
type RepositoryForge interface {
	RepositoryPage(ctx context.Context, installationID int64, number int, etag string) (github.RepositoryPage, error)
	// ReadRate is the last known state of the bucket that reads are counted in.
	ReadRate(installationID int64) (fleet.RateState, bool)
}

// RepositoryStore is the ledger.
type RepositoryStore interface {
	// ReadableAccounts lists accounts with an installation that can be asked.
	ReadableAccounts(ctx context.Context) ([]dispatch.Account, error)
	// SyncRepositories corrects the ledger by a list that was begun then; what was reported later is left
	// alone.
	SyncRepositories(
		ctx context.Context, account dispatch.Account, began, now time.Time, list []fleet.Repository, whole bool,
	) (dispatch.RepositorySync, error)
}

// RepositoriesOptions of NewRepositories; Forge and Store are required.
type RepositoriesOptions struct {
	Forge RepositoryForge
	Store RepositoryStore
	Log   *slog.Logger
	Now   func() time.Time
}

// Repositories compares what each installation may access with the ledger: a message that a repository was removed or added may never have
// come, and there is none for a rename. Its findings take the path of the webhook. It keeps the pages that it has read, so that GitHub is
// asked for changes only. It is safe for concurrent use.
type Repositories struct {
	opt RepositoriesOptions

	mu    sync.Mutex
	pages map[pageKey]github.RepositoryPage
}

type pageKey struct {
	installation int64
	number       int
}

// NewRepositories checks the options.
func NewRepositories(opt RepositoriesOptions) (*Repositories, error) {
	if opt.Forge == nil || opt.Store == nil {
		return nil, errors.New("comparing repositories needs GitHub and a store")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Repositories{opt: opt, pages: map[pageKey]github.RepositoryPage{}}, nil
}

// Run compares once. An installation that cannot be read is left for the next time, and keeps no other from being compared.
func (r *Repositories) Run(ctx context.Context) error {
	accounts, err := r.opt.Store.ReadableAccounts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	kept := map[int64]bool{}
	for _, account := range accounts {
		kept[account.InstallationID] = true
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		errs = append(errs, r.compare(ctx, account))
	}
	r.forget(kept)
	return errors.Join(errs...)
}

func (r *Repositories) compare(ctx context.Context, account dispatch.Account) error {
	if rate, known := r.opt.Forge.ReadRate(account.InstallationID); known && rate.Limit > 0 &&
		rate.Remaining < rate.Limit/10 && r.opt.Now().Before(rate.Reset) { // others need what is left more
		return nil
	}
	began := r.opt.Now().Add(-skew)
	list, whole, err := r.read(ctx, account.InstallationID)
	if err != nil {
		r.opt.Log.WarnContext(ctx, "listing an installation's repositories; they are compared the next time", "account", account.Login, "error", err)
		return nil
	}
	did, err := r.opt.Store.SyncRepositories(ctx, account, began, r.opt.Now(), list, whole)
	if err != nil {
		return fmt.Errorf("comparing repositories: %w", err)
	}
	if did != (dispatch.RepositorySync{}) {
		r.opt.Log.InfoContext(ctx, "repositories differed from GitHub's list", "account", account.Login,
			"restored", did.Restored, "renamed", did.Renamed, "missing", did.Missing, "removed", did.Removed)
	}
	return nil
}

// read returns the list, and whether it is whole: as many as GitHub says that there are, by each page's word.
func (r *Repositories) read(ctx context.Context, installation int64) (list []fleet.Repository, whole bool, _ error) {
	seen := map[int64]bool{}
	total := -1
	steady := true
	for number := 1; number != 0; {
		if number > mostPages {
			return list, false, nil
		}
		page, err := r.page(ctx, pageKey{installation, number})
		if err != nil {
			return nil, false, err
		}
		steady = steady && (total < 0 || total == page.Total)
		total = page.Total
		for _, one := range page.Repositories {
			seen[one.ID] = true
			list = append(list, one)
		}
		if number = page.Next; number == 0 {
			break
		}
	}
	return list, steady && len(seen) == total, nil
}

func (r *Repositories) page(ctx context.Context, key pageKey) (github.RepositoryPage, error) {
	r.mu.Lock()
	known := r.pages[key]
	r.mu.Unlock()
	page, err := r.opt.Forge.RepositoryPage(ctx, key.installation, key.number, known.ETag)
	if err != nil {
		return github.RepositoryPage{}, err
	}
	if page.Unchanged {
		return known, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages[key] = page
	return page, nil
}

// forget drops the pages of installations that are gone.
func (r *Repositories) forget(kept map[int64]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.pages {
		if !kept[key.installation] {
			delete(r.pages, key)
		}
	}
}
