package roster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// survey is every scope in which a runner could be registered, as of a moment.
type survey struct {
	at     time.Time
	byRepo bool
	sites  []site
}

// site is a scope, or an account whose scopes are not all known: then doubt says so, and it is not read.
type site struct {
	place
	owner fleet.Owner
	doubt string
}

// of lists the scopes that a pod could be registered in. A pod with an owner has had its one shot with that account.
func (s *survey) of(q Query) []site {
	if q.AccountID == 0 && q.OwnerLabel == "" {
		return s.sites
	}
	var mine []site
	for _, one := range s.sites {
		if q.owned(one.owner) {
			mine = append(mine, one)
		}
	}
	return mine
}

// owned reports whether the pod works for that account: by its id, and by what it was called only where that is not known.
func (q Query) owned(by fleet.Owner) bool {
	if q.AccountID != 0 {
		return by.ID == q.AccountID
	}
	return runnerpod.OwnerLabelValue(by.Login) == q.OwnerLabel
}

// nowhere says why there is no scope to look into.
func (s *survey) nowhere(q Query) string {
	if q.AccountID != 0 && q.OwnerLabel == "" {
		return fmt.Sprintf("the pod belongs to account %d, which has no installation of the App", q.AccountID)
	}
	if q.OwnerLabel != "" {
		return fmt.Sprintf("the pod belongs to %s, which has no installation of the App", q.OwnerLabel)
	}
	return "no account has the App installed, so it is unknown whether the runner still exists"
}

// survey lists the scopes, or takes the list of a moment ago, if it is not older than that: a scope may be new.
func (r *Reader) survey(ctx context.Context, since time.Time) (*survey, error) {
	now, byRepo := r.opt.Now(), r.opt.ByRepository()
	r.mu.Lock()
	last := r.places
	r.mu.Unlock()
	if last != nil && last.byRepo == byRepo && !last.at.Before(since) && now.Sub(last.at) < surveyKept {
		return last, nil
	}
	owners, err := r.opt.Forge.Owners(ctx)
	if err != nil {
		return nil, err
	}
	known, err := r.opt.Ledger.RepositoryScopes(ctx)
	if err != nil {
		return nil, err
	}
	next := &survey{at: now, byRepo: byRepo}
	for _, owner := range owners {
		next.sites = append(next.sites, r.sitesOf(ctx, owner, byRepo, known)...)
	}
	r.mu.Lock()
	r.places = next
	r.mu.Unlock()
	return next, nil
}

func (r *Reader) sitesOf(ctx context.Context, owner fleet.Owner, byRepo bool, known []Known) []site {
	at := func(scope fleet.Scope) site { return site{place: place{owner.InstallationID, scope}, owner: owner} }
	doubt := func(sentence string) site {
		s := at(fleet.Scope{Owner: owner.Login})
		s.doubt = sentence
		return s
	}
	if owner.Suspended {
		return []site{doubt("the installation of " + owner.Login + " is suspended, so its runners cannot be listed")}
	}
	var sites []site
	if !owner.User {
		sites = append(sites, at(fleet.Scope{Owner: owner.Login}))
	}
	seen := map[string]bool{}
	// Of two repositories that had one name after the other each is read: their ids distinguish them.
	add := func(name string, id int64) {
		key := strings.ToLower(name)
		if id != 0 {
			key = strconv.FormatInt(id, 10)
		}
		scope, err := fleet.ParseScope(name)
		if err == nil && scope.Repo != "" && strings.EqualFold(scope.Owner, owner.Login) && !seen[key] {
			seen[key] = true
			sites = append(sites, at(scope.Of(id)))
		}
	}
	for _, one := range known { // an organization's too: its pools may have changed their scope
		scope, err := fleet.ParseScope(one.Repository)
		if err == nil && one.AccountID == owner.ID { // EXCL-6: whatever the account's name was then
			scope.Owner = owner.Login
			add(scope.String(), one.RepositoryID)
		}
		add(one.Repository, one.RepositoryID) // and the one that has the name now
	}
	if over := len(seen) - r.opt.MaxRepositories; over > 0 { // EXCL-6: what is left out may hold the runner
		sites = append(sites[:len(sites)-over], doubt(fmt.Sprintf("runners of %s may be registered at more than %d repositories",
			owner.Login, r.opt.MaxRepositories)))
	}
	if !owner.User && !byRepo {
		return sites
	}
	list, whole, err := r.opt.Forge.Repositories(ctx, owner.InstallationID, r.opt.MaxRepositories)
	switch {
	case err != nil:
		return append(sites, doubt(fmt.Sprintf("the repositories of %s cannot be listed: %v", owner.Login, err)))
	case !whole:
		sites = append(sites, doubt(fmt.Sprintf("%s has more than %d repositories, and its runners may be at any of them",
			owner.Login, r.opt.MaxRepositories)))
	}
	for _, one := range list {
		add(one.Name, one.ID)
	}
	return sites
}
