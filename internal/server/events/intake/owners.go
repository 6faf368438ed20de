package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// A webhook that is set on a repository or an organization, and not on the GitHub App, names no installation. Its events are
// served nevertheless, if the App is installed there: the ledger knows that of most owners, and GitHub of the others.

// Requests to GitHub are bounded per owner and in total (TEN-10): every delivery may name another owner.
const (
	installedKept    = 10 * time.Minute
	notInstalledKept = time.Minute // short: an administrator is about to install the App
	mostOwners       = 1024
	// lookupsAMinute is for all owners together, of which lookupBurst may come at once.
	lookupsAMinute = 10
	lookupBurst    = 20
	// loggedEvery is how often the log names an owner again.
	loggedEvery = time.Hour
)

// errTooManyOwners: more owners were unknown within a minute than GitHub is asked about.
var errTooManyOwners = errors.New("too many unknown owners are being looked up")

// OwnerStore is what the ledger knows of owners.
type OwnerStore interface {
	// InstallationOf returns the App's installation at the account with that id; 0 where none is known.
	InstallationOf(ctx context.Context, accountID int64) (int64, error)
	// NoteUninstalled notes that events come from an account where the App is not installed.
	NoteUninstalled(ctx context.Context, owner dispatch.Account, repository string, now time.Time) error
}

// Installations is GitHub.
type Installations interface {
	// InstallationFor returns the App's installation that serves an organization or a repository; fleet.ErrNotFound where there
	// is none.
	InstallationFor(ctx context.Context, scope fleet.Scope) (int64, error)
}

// OwnersOptions are the options of NewOwners; Store and GitHub are required.
type OwnersOptions struct {
	Store  OwnerStore
	GitHub Installations
	Log    *slog.Logger
	Now    func() time.Time
}

// Owners finds the App's installation of the owner of a repository. It is safe for concurrent use.
type Owners struct {
	opt     OwnersOptions
	lookups *rate.Limiter

	mu    sync.Mutex
	known map[string]*owner // by scope, in lower case
}

// owner is what GitHub said of one. The holder of turn may use what is below it.
type owner struct {
	turn chan struct{}

	installation int64 // 0: the App is not installed there
	until        time.Time
	logged       time.Time // when the log named it last
}

// NewOwners checks the options.
func NewOwners(opt OwnersOptions) (*Owners, error) {
	if opt.Store == nil || opt.GitHub == nil {
		return nil, errors.New("finding installations by owner needs a store and GitHub")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	return &Owners{
		opt: opt, lookups: rate.NewLimiter(rate.Every(time.Minute/lookupsAMinute), lookupBurst), known: map[string]*owner{},
	}, nil
}

// find returns the installation; 0 where the App is not installed. An error means that it is not known.
func (o *Owners) find(ctx context.Context, of dispatch.Account, repository string) (int64, error) {
	id, err := o.opt.Store.InstallationOf(ctx, of.ID)
	if err != nil || id != 0 {
		return id, err
	}
	scope := fleet.Scope{Owner: of.Login}
	if of.User { // an installation of a user is found by a repository
		if scope, err = fleet.ParseScope(repository); err != nil {
			return 0, fmt.Errorf("%w: %w", fleet.ErrRejected, err)
		}
	}
	one, err := o.entry(strings.ToLower(scope.String()))
	if err != nil {
		return 0, err
	}
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-one.turn }()
	now := o.opt.Now()
	if now.Before(one.until) {
		return one.installation, nil
	}
	if !o.lookups.AllowN(now, 1) { // TEN-10
		return 0, errTooManyOwners
	}
	id, err = o.opt.GitHub.InstallationFor(ctx, scope)
	switch {
	case errors.Is(err, fleet.ErrNotFound):
		one.installation, one.until = 0, now.Add(notInstalledKept)
		o.report(ctx, one, of, repository, now)
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("looking up the App's installation at %s: %w", scope, err)
	}
	one.installation, one.until = id, now.Add(installedKept)
	return id, nil
}

// report notes an owner without the App in the log, once an hour, and in the ledger, where doctor reads it.
func (o *Owners) report(ctx context.Context, one *owner, of dispatch.Account, repository string, now time.Time) {
	if err := o.opt.Store.NoteUninstalled(ctx, of, repository, now); err != nil {
		o.opt.Log.WarnContext(ctx, "noting an owner without the App", "owner", of.Login, "error", err)
	}
	if one.logged.IsZero() || now.Sub(one.logged) >= loggedEvery {
		one.logged = now
		o.opt.Log.WarnContext(ctx, "webhooks come from a repository or organization where the GitHub App is not installed",
			"owner", of.Login, "repository", repository)
	}
}

// entry is the owner's. When there are too many, entries without state are dropped.
func (o *Owners) entry(key string) (*owner, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.known[key]; one != nil {
		return one, nil
	}
	if len(o.known) >= mostOwners {
		o.forget()
	}
	if len(o.known) >= mostOwners {
		return nil, errTooManyOwners
	}
	one := &owner{turn: make(chan struct{}, 1)}
	o.known[key] = one
	return one, nil
}

func (o *Owners) forget() {
	now := o.opt.Now()
	for key, one := range o.known {
		select {
		case one.turn <- struct{}{}:
			if !now.Before(one.until) {
				delete(o.known, key)
			}
			<-one.turn
		default: // it is being looked up
		}
	}
}

// resolve finds the installation for an event that names none; 0 with what to answer instead.
func (i *Intake) resolve(ctx context.Context, ev *github.WorkflowJobEvent) (int64, Result) {
	const event = "workflow_job"
	if i.opt.Owners == nil {
		return 0, ignored(event, "the event names no installation; set the webhook on the GitHub App, not on the repository")
	}
	of := account(ev.Repository.Owner, 0)
	id, err := i.opt.Owners.find(ctx, of, ev.Repository.FullName)
	switch {
	case errors.Is(err, fleet.ErrRejected):
		return 0, ignored(event, "the event names no installation, and its repository's owner is not an account")
	case err != nil:
		i.opt.Log.ErrorContext(ctx, "looking up the installation for a webhook that names none", "owner", of.Login, "error", err)
		return 0, Result{Event: event, Outcome: Failed, Reason: "the event names no installation, and it could not be looked up whether the App is installed at " +
			of.Login + "; redeliver it"}
	case id == 0:
		return 0, Result{Event: event, Outcome: NotInstalled, Reason: "ignored: the GitHub App is not installed at " + of.Login + "; install it there"}
	}
	return id, Result{}
}
