package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	opRoster = "reading the list of runners"
	opRepos  = "listing an installation's repositories"
	// maxRosterPages bounds one reading: 10,000 runners, which is what GitHub allows in a group.
	maxRosterPages = 100
)

// Roster reads the scope's whole list and reports whether absence from it proves anything.
//
// GitHub numbers pages and documents no order, and neither does it document whether its filter "name" ("the name of a
// self-hosted runner") accepts a prefix, so this does not rely on it. A runner that is removed while pages are read moves
// those behind it one place forward, so that one may slip from an unread page to one that was read. A list of one page
// cannot be torn. A longer one is read from its last page to its first. Where it is in the order of ids (which is checked
// each time), a removal moves the others towards what is still to be read, a new one stands at the end, and none is missed.
// In any other order it is read twice, and counts as whole if both times it was the same.
//
// Where the id of the scope's repository is known, the list is that repository's, whatever its present name.
func (c *Client) Roster(ctx context.Context, installationID int64, scope fleet.Scope) (list fleet.Roster, err error) {
	err = c.whereItIs(ctx, installationID, scope, witness, func(ctx context.Context, scope fleet.Scope) (err error) {
		list, err = c.rosterOf(ctx, installationID, scope)
		return err
	})
	if err != nil {
		return fleet.Roster{}, err
	}
	return list, nil
}

func (c *Client) rosterOf(ctx context.Context, installationID int64, scope fleet.Scope) (fleet.Roster, error) {
	first, err := c.readRoster(ctx, installationID, scope)
	if err != nil || first.ordered {
		return first.roster(""), err
	}
	second, err := c.readRoster(ctx, installationID, scope)
	if err != nil {
		return fleet.Roster{}, err
	}
	if second.ordered {
		return second.roster(""), nil
	}
	if !slices.Equal(first.ids(), second.ids()) || len(second.runners) != second.total {
		return second.roster("the list of runners of " + scope.String() + " changed while it was read"), nil
	}
	return second.roster(""), nil
}

type rosterReading struct {
	runners map[int64]fleet.Registration
	total   int
	ordered bool // read in an order that misses no runner
}

func (r rosterReading) ids() []int64 {
	ids := make([]int64, 0, len(r.runners))
	for id := range r.runners {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (r rosterReading) roster(doubt string) fleet.Roster {
	out := fleet.Roster{Complete: doubt == "" && r.runners != nil, Doubt: doubt}
	for _, id := range r.ids() {
		out.Runners = append(out.Runners, r.runners[id])
	}
	return out
}

var errHugeRoster = errors.New("the scope has more runners than one reading takes")

// readRoster reads page 1, which says how many there are, then from the last page to the first.
func (c *Client) readRoster(ctx context.Context, installationID int64, scope fleet.Scope) (rosterReading, error) {
	out := rosterReading{runners: map[int64]fleet.Registration{}}
	page, last, err := c.rosterPage(ctx, installationID, scope, 1, &out)
	if err != nil {
		return rosterReading{}, err
	}
	if last <= 1 {
		out.ordered = len(page) == out.total // one answer cannot be torn; a cut one says so by its count
		return out, nil
	}
	if last > maxRosterPages {
		return rosterReading{}, errHugeRoster
	}
	out.ordered = true
	var after int64 // the first id of the page behind
	for number := last; number >= 1; number-- {
		page, _, err := c.rosterPage(ctx, installationID, scope, number, &out)
		if err != nil {
			return rosterReading{}, err
		}
		out.ordered = out.ordered && slices.IsSorted(page) && (len(page) == 0 || after == 0 || page[0] < after)
		if len(page) > 0 {
			after = page[0]
		}
	}
	// EXCL-6: as many as GitHub's last count: a page that was cut short would hide the rest of it. One that came in
	// between, behind the pages that were read, makes it look short, too: then it is read again.
	out.ordered = out.ordered && len(out.runners) >= out.total
	return out, nil
}

func (c *Client) rosterPage(
	ctx context.Context, installationID int64, scope fleet.Scope, number int, into *rosterReading,
) (ids []int64, last int, err error) {
	options := &gh.ListRunnersOptions{ListOptions: gh.ListOptions{PerPage: pageSize, Page: number}}
	page, pos, err := c.runnerPage(ctx, installationID, opRoster, scope, options)
	if err != nil {
		return nil, 0, err
	}
	for _, one := range page {
		ids = append(ids, one.GetID())
		into.runners[one.GetID()] = registration(one)
	}
	into.total = pos.total
	return ids, pos.last, nil
}

// Owners lists whose scopes the App may read.
func (c *Client) Owners(ctx context.Context) ([]fleet.Owner, error) {
	installations, err := c.Installations(ctx)
	if err != nil {
		return nil, err
	}
	owners := make([]fleet.Owner, len(installations))
	for i, in := range installations {
		owners[i] = fleet.Owner{
			ID: in.Account.ID, Login: in.Account.Login, User: in.Account.Type == "User", InstallationID: in.ID,
			Suspended: !in.SuspendedAt.IsZero(),
		}
	}
	return owners, nil
}

// Repositories lists the repositories that an installation may use, up to most; whole indicates that there are no more.
func (c *Client) Repositories(ctx context.Context, installationID int64, most int) (list []fleet.Repository, whole bool, err error) {
	options := &gh.ListOptions{PerPage: pageSize}
	for {
		var page *gh.ListRepositories
		next := 0
		do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
			page, resp, err = api.Apps.ListRepos(ctx, options)
			if resp != nil {
				next = resp.NextPage
			}
			if err == nil && (page == nil || page.Repositories == nil) {
				err = errNoList
			}
			return resp, err
		}
		if err := c.asInstallation(ctx, installationID, opRepos, classSweep, nil, do); err != nil {
			return nil, false, err
		}
		for _, one := range page.Repositories {
			if len(list) == most {
				return list, false, nil
			}
			list = append(list, fleet.Repository{Name: clean(one.GetFullName()), ID: one.GetID()})
		}
		if next <= options.Page {
			return list, len(list) >= page.GetTotalCount(), nil
		}
		options.Page = next
	}
}

// RepositoryPage is a part of the list of repositories that an installation may use.
type RepositoryPage struct {
	Repositories []fleet.Repository
	Total        int    // of all pages
	Next         int    // the number of the next page; 0: there is none
	ETag         string // of this page; empty when GitHub gives none
	Unchanged    bool   // the page is still what it was when it had the ETag that was sent; nothing else is filled in
}

// RepositoryPage reads a page of that list; the first is 1. With the ETag of an earlier reading GitHub reports whether the page
// has changed since; "unchanged" costs nothing of the installation's rate limit.
func (c *Client) RepositoryPage(ctx context.Context, installationID int64, number int, etag string) (RepositoryPage, error) {
	var out RepositoryPage
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		req, err := api.NewRequest(ctx, http.MethodGet, fmt.Sprintf("installation/repositories?per_page=%d&page=%d", pageSize, number), nil)
		if err != nil {
			return nil, err
		}
		if etag != "" {
			req.Header.Set("If-None-Match", etag)
		}
		var list gh.ListRepositories
		resp, err := api.Do(req, &list)
		if resp != nil && resp.Response != nil && resp.StatusCode == http.StatusNotModified && etag != "" {
			out.Unchanged = true
			return resp, nil
		}
		if err == nil && list.Repositories == nil {
			err = errNoList
		}
		if err == nil {
			out.read(&list, resp)
		}
		return resp, err
	}
	err := c.asInstallation(ctx, installationID, opRepos, classSweep, nil, do)
	return out, err
}

func (p *RepositoryPage) read(list *gh.ListRepositories, resp *gh.Response) {
	p.Total, p.Next, p.ETag = list.GetTotalCount(), resp.NextPage, clean(resp.Header.Get("ETag"))
	for _, one := range list.Repositories {
		p.Repositories = append(p.Repositories, fleet.Repository{Name: clean(one.GetFullName()), ID: one.GetID()})
	}
}

// ReadRate is the last known state of the bucket that reads are counted in.
func (c *Client) ReadRate(installationID int64) (fleet.RateState, bool) {
	in, ok := c.peek(installationID)
	if !ok {
		return fleet.RateState{}, false
	}
	return in.rates.of(classRead)
}
