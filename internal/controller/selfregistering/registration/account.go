package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// refusalHolds is how long credentials are left alone that GitHub does not accept: who goes on trying is barred.
const refusalHolds = 30 * time.Second

// account is one set of credentials, and the bulkhead around its requests: when GitHub hangs, only this account's slots are held.
type account struct {
	name     string // for people
	client   *github.Client
	identity identity // zero for the installation's own App
	timeout  time.Duration
	now      func() time.Time
	slots    chan struct{}

	// Of the Hub, under its lock.
	version string
	used    time.Time

	mu      sync.Mutex
	refused map[int64]refusal // by installation
}

type refusal struct {
	err   error
	until time.Time
}

func newAccount(name string, client *github.Client, who identity, o HubOptions) *account {
	return &account{
		name: name, client: client, identity: who, timeout: o.CallTimeout, now: o.Now, slots: make(chan struct{}, o.Calls),
		refused: map[int64]refusal{},
	}
}

// do makes a call: their number is bounded, and so is the duration of each, to a multiple of the timeout.
func (a *account) do(ctx context.Context, times int, call func(context.Context) error) error {
	select {
	case a.slots <- struct{}{}:
	default:
		return ErrBusy
	}
	defer func() { <-a.slots }()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(times)*a.timeout)
	defer cancel()
	return call(ctx)
}

// at is the place where the scope's runners are registered, with these credentials.
func (a *account) at(ctx context.Context, scope fleet.Scope, target Target) (*place, error) {
	p := &place{account: a, scope: scope, target: target}
	if p.found() {
		return p, nil
	}
	err := a.do(ctx, 1, p.find)
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", scope, p.explain(err))
	}
	return p, nil
}

// hasToken reports whether the credentials are a token, which needs no installation.
func (a *account) hasToken() bool { return a.identity.token.Reveal() != "" }

// refuses is the last word on credentials that GitHub did not accept a moment ago.
func (a *account) refuses(installation int64) (refusal, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.refused[installation]
	return last, ok && a.now().Before(last.until)
}

// noteResponse records whether the credentials were accepted.
func (a *account) noteResponse(installation int64, err error) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !errors.Is(err, github.ErrUnauthorized) {
		if err == nil {
			delete(a.refused, installation)
		}
		return
	}
	for other, last := range a.refused {
		if !now.Before(last.until) {
			delete(a.refused, other)
		}
	}
	a.refused[installation] = refusal{err, now.Add(refusalHolds)}
}

// scopeOf is the place that a target names.
func scopeOf(target Target) (fleet.Scope, error) {
	var named []string
	for _, one := range []string{target.Enterprise, target.Organization, target.Repository} {
		if one != "" {
			named = append(named, one)
		}
	}
	if len(named) != 1 {
		return fleet.Scope{}, fmt.Errorf("%w: set exactly one of enterprise, organization and repository", ErrTarget)
	}
	if target.Repository == "" {
		return fleet.Scope{Enterprise: target.Enterprise, Owner: target.Organization}, nil
	}
	owner, name, found := strings.Cut(target.Repository, "/")
	if !found || owner == "" || name == "" {
		return fleet.Scope{}, fmt.Errorf("%w: %q is not owner/name", ErrTarget, target.Repository)
	}
	if target.Group != "" {
		return fleet.Scope{}, fmt.Errorf("%w: repositories have no runner groups: remove group", ErrTarget)
	}
	return fleet.Scope{Owner: owner, Repo: name, RepositoryID: target.RepositoryID}, nil
}
