package installations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Every is how often GitHub is asked: one request per hundred installations.
const Every = 5 * time.Minute

// skew is how much the clocks of two replicas may differ: one notes when a message came, another when a list was begun.
const skew = 30 * time.Second

// Forge is GitHub.
type Forge interface {
	Installations(ctx context.Context) ([]github.Installation, error)
}

// Store is the ledger.
type Store interface {
	// SyncInstallations corrects the ledger by a list that was begun then; what was reported later is left
	// alone.
	SyncInstallations(ctx context.Context, began, now time.Time, list []dispatch.Installation) (dispatch.InstallationSync, error)
}

// Options of New; Forge and Store are required.
type Options struct {
	Forge Forge
	Store Store
	Log   *slog.Logger
	Now   func() time.Time
}

// Pass compares. It keeps no state and is safe for concurrent use.
type Pass struct{ opt Options }

// New checks the options.
func New(opt Options) (*Pass, error) {
	if opt.Forge == nil || opt.Store == nil {
		return nil, errors.New("comparing installations needs GitHub and a store")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Pass{opt}, nil
}

// Run compares once. An error names the accounts that were not changed; differences of others have been corrected.
func (p *Pass) Run(ctx context.Context) error {
	began := p.opt.Now()
	listed, err := p.opt.Forge.Installations(ctx)
	if err != nil {
		return fmt.Errorf("listing installations: %w", err)
	}
	if len(listed) == 0 {
		p.opt.Log.WarnContext(ctx, "GitHub lists no installation of the App at all; nothing follows from that")
		return nil
	}
	list := make([]dispatch.Installation, 0, len(listed))
	for _, one := range listed {
		if one.ID <= 0 || one.Account.ID <= 0 || one.Account.Login == "" { // an enterprise's installation has no account
			continue
		}
		list = append(list, dispatch.Installation{
			Account: dispatch.Account{
				ID: one.Account.ID, Login: one.Account.Login, User: one.Account.Type == "User", InstallationID: one.ID,
			},
			Suspended: !one.SuspendedAt.IsZero(),
		})
	}
	did, err := p.opt.Store.SyncInstallations(ctx, began.Add(-skew), p.opt.Now(), list)
	if did != (dispatch.InstallationSync{}) {
		p.opt.Log.InfoContext(ctx, "installations differed from GitHub's list",
			"corrected", did.Corrected, "missing", did.Missing, "removed", did.Removed)
	}
	return err
}
