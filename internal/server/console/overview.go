package console

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// overviewView is the fleet at a glance.
type overviewView struct {
	Queued, Blocked, Running int64
	Many                     bool       // more accounts have running jobs than are counted
	Oldest                   *time.Time // when the job that waits longest for a runner of a pool was queued
	AtLimit, Suspended       []adminapi.Account
	Recent                   adminapi.ConclusionCounts
	Jobs                     []adminapi.Job
	Pools                    poolsView
	History                  historyView
}

// mostAccounts is how many pages of accounts the overview adds up.
const mostAccounts = 10

func loadOverview(_ *Console, v *visitor, at location) (string, any, error) {
	var view overviewView
	after := ""
	for range mostAccounts {
		query := url.Values{"limit": {strconv.Itoa(adminapi.MaxPage)}}
		if after != "" {
			query.Set("after", after)
		}
		var list adminapi.AccountList
		if err := v.get(adminapi.PathAccounts+"?"+query.Encode(), &list); err != nil {
			return "", nil, err
		}
		for _, account := range list.Accounts {
			view.add(account)
		}
		if after = list.Next; after == "" {
			break
		}
	}
	view.Many = view.Many || after != ""
	var jobs adminapi.JobList
	if err := v.get(adminapi.PathJobs+"?limit=10", &jobs); err != nil {
		return "", nil, err
	}
	view.Jobs = jobs.Jobs
	if err := v.get(adminapi.PathConclusions, &view.Recent); err != nil {
		return "", nil, err
	}
	var err error
	if view.Pools, err = readPools(v); err != nil {
		return "", nil, err
	}
	for _, pool := range view.Pools.Pools {
		view.demand(pool.Demand)
	}
	if view.History, err = readHistory(v, adminapi.PathHistory, at, "/ui/", nil); err != nil {
		return "", nil, err
	}
	return "Overview", view, nil
}

// demand adds a pool's jobs: `bullpen status` has the same numbers.
func (o *overviewView) demand(d *adminapi.PoolDemand) {
	if d == nil {
		return
	}
	o.Queued, o.Blocked = o.Queued+d.Queued, o.Blocked+d.TotalBlocked()
	if d.OldestQueued != nil && (o.Oldest == nil || d.OldestQueued.Before(*o.Oldest)) {
		o.Oldest = d.OldestQueued
	}
}

func (o *overviewView) add(account adminapi.Account) {
	for _, budget := range account.Budgets {
		o.Running += budget.Usage.Jobs
	}
	if account.SuspendedByGitHub || account.SuspendedByAdministrator {
		o.Suspended = append(o.Suspended, account)
	}
	if slices.ContainsFunc(account.Budgets, func(b adminapi.Budget) bool { return b.Blocked > 0 }) {
		o.AtLimit = append(o.AtLimit, account)
	}
}
