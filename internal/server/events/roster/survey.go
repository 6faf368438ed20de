package roster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// survey is every scope in which a runner could be registered, of the accounts that were asked about.
type survey struct{ sites []site }

// site is a scope, or an account whose scopes are not all known: then doubt says so, and it is not read.
type site struct {
	place
	owner fleet.Owner
	doubt string
}

// of lists the scopes that a pod could be registered in. A pod with an owner has had its one shot with that account.
func (s *survey) of(q Query) []site {
	if !q.named() {
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

// named reports whether it is known which account the pod works for.
func (q Query) named() bool { return q.AccountID != 0 || q.OwnerLabel != "" }

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

// directory is which accounts there are, and where our own rows say that their registrations may be alive.
type directory struct {
	owners []fleet.Owner
	known  map[int64][]Known // by the account's id
	err    error
}

// listing is the repositories that an installation may use.
type listing struct {
	repositories []fleet.Repository
	whole        bool
	err          error
	hurried      bool // it had no more than listTimeout, because others were listed with it
}

// survey lists the scopes of those accounts that the queries name, and of all only if one names none: an account that
// GitHub does not respond for delays no other account's pods (TEN-11).
func (r *Reader) survey(ctx context.Context, accounts directory, queries []Query) *survey {
	since := latest(queries)
	byRepo := r.opt.ByRepository()
	owners := concerned(accounts.owners, queries)
	var listed []int // of owners: whose repositories are places, too
	for i, owner := range owners {
		if !owner.Suspended && (owner.User || byRepo) {
			listed = append(listed, i)
		}
	}
	lists := make([]*listing, len(owners))
	each(len(listed), listers, func(k int) {
		got := r.repositories(ctx, owners[listed[k]].InstallationID, since, len(listed) > 1)
		lists[listed[k]] = &got
	})
	all := &survey{}
	for i, owner := range owners {
		all.sites = append(all.sites, r.sitesOf(owner, accounts.known[owner.ID], lists[i])...)
	}
	return all
}

// latest is when the strictest of the queries was asked: nothing that was read before is reused, since a scope may be new.
func latest(queries []Query) (since time.Time) {
	for _, q := range queries {
		if q.Since.After(since) {
			since = q.Since
		}
	}
	return since
}

// concerned are the accounts that the pods could work for.
func concerned(owners []fleet.Owner, queries []Query) []fleet.Owner {
	var mine []fleet.Owner
	for _, owner := range owners {
		if slices.ContainsFunc(queries, func(q Query) bool { return !q.named() || q.owned(owner) }) {
			mine = append(mine, owner)
		}
	}
	return mine
}

// directory lists the accounts and what our rows know of their scopes.
func (r *Reader) directory(ctx context.Context, since time.Time) (directory, error) {
	now := r.opt.Now()
	fits := func(began time.Time, got directory) bool { return got.err == nil && r.recent(began, since, now) }
	got, ok := share(ctx, r, r.directories, struct{}{}, fits, func() directory {
		owners, err := r.opt.Forge.Owners(ctx)
		if err != nil {
			return directory{err: err}
		}
		known, err := r.opt.Ledger.RepositoryScopes(ctx)
		return directory{owners: owners, known: byAccount(owners, known), err: err}
	})
	if !ok {
		return directory{}, ctx.Err()
	}
	return got, got.err
}

// recent reports whether a survey's part that was begun then may be used again.
func (r *Reader) recent(began, since, now time.Time) bool {
	return !began.Before(since) && now.Sub(began) < surveyKept
}

// byAccount gives each account the repositories that are known by its id, and those that its present name has.
func byAccount(owners []fleet.Owner, known []Known) map[int64][]Known {
	called := make(map[string][]int64, len(owners))
	out := make(map[int64][]Known, len(owners))
	for _, owner := range owners {
		login := strings.ToLower(owner.Login)
		called[login] = append(called[login], owner.ID)
	}
	for _, one := range known {
		out[one.AccountID] = append(out[one.AccountID], one)
		login, _, _ := strings.Cut(one.Repository, "/")
		for _, id := range called[strings.ToLower(login)] {
			if id != one.AccountID {
				out[id] = append(out[id], one)
			}
		}
	}
	return out
}

// repositories lists those that an installation may use. A failure is kept like a success, so that an installation that
// hangs costs its time once in a while; but what failed in a hurry is read again by a caller that is in none (RECV-5).
func (r *Reader) repositories(ctx context.Context, installation int64, since time.Time, hurried bool) listing {
	now := r.opt.Now()
	fits := func(began time.Time, got listing) bool {
		return r.recent(began, since, now) && (got.err == nil || hurried || !got.hurried)
	}
	got, ok := share(ctx, r, r.listings, installation, fits, func() listing {
		ctx := ctx
		if hurried {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, listTimeout)
			defer cancel()
		}
		got := listing{hurried: hurried}
		got.repositories, got.whole, got.err = r.opt.Forge.Repositories(ctx, installation, r.opt.MaxRepositories)
		return got
	})
	if !ok {
		return listing{err: ctx.Err()}
	}
	return got
}

// sitesOf lists an account's scopes. Its repositories are nil where no runner is registered there but those that are known.
func (r *Reader) sitesOf(owner fleet.Owner, known []Known, repositories *listing) []site {
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
	switch {
	case repositories == nil:
		return sites
	case repositories.err != nil:
		return append(sites, doubt(fmt.Sprintf("the repositories of %s cannot be listed: %v", owner.Login, repositories.err)))
	case !repositories.whole:
		sites = append(sites, doubt(fmt.Sprintf("%s has more than %d repositories, and its runners may be at any of them",
			owner.Login, r.opt.MaxRepositories)))
	}
	for _, one := range repositories.repositories {
		add(one.Name, one.ID)
	}
	return sites
}
