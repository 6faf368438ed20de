package console

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// overviewView is the fleet at a glance.
type overviewView struct {
	Queued, Held, Running int64
	Many                  bool // more wait than are counted
	AtLimit, Suspended    []adminapi.Account
	Jobs                  []adminapi.Job
	Pools                 poolsView
	History               historyView
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
	var err error
	if view.Pools, err = readPools(v); err != nil {
		return "", nil, err
	}
	if view.History, err = readHistory(v, adminapi.PathHistory, at, "/ui/", nil); err != nil {
		return "", nil, err
	}
	return "Overview", view, nil
}

func (o *overviewView) add(account adminapi.Account) {
	o.Queued += account.Queued
	o.Held += account.Held
	o.Many = o.Many || account.Queued >= adminapi.MaxQueued
	for _, budget := range account.Budgets {
		o.Running += budget.Usage.Jobs
	}
	if account.SuspendedByGitHub || account.SuspendedByOperator {
		o.Suspended = append(o.Suspended, account)
	}
	if slices.ContainsFunc(account.Budgets, func(b adminapi.Budget) bool { return b.Usage.Jobs > 0 && b.Usage.Jobs >= b.Limits.Jobs }) {
		o.AtLimit = append(o.AtLimit, account)
	}
}
