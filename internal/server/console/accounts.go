package console

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/lib/auditchange"
)

// accountsView is a page of accounts.
type accountsView struct {
	Accounts    []adminapi.Account
	First, Next string
	Deleted     bool
}

func loadAccounts(_ *Console, v *visitor, at location) (string, any, error) {
	view := accountsView{Deleted: at.query.Get("deleted") == "true"}
	query, base := url.Values{}, url.Values{}
	if view.Deleted {
		base.Set("deleted", "true")
		query.Set("deleted", "true")
	}
	if after := at.query.Get("after"); after != "" {
		query.Set("after", after)
		view.First = "/ui/accounts?" + base.Encode()
	}
	var list adminapi.AccountList
	if err := v.get(adminapi.PathAccounts+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Accounts = list.Accounts
	if list.Next != "" {
		base.Set("after", list.Next)
		view.Next = "/ui/accounts?" + base.Encode()
	}
	return "Accounts", view, nil
}

// accountView is one account, what is running and waiting of it, and what was changed last.
type accountView struct {
	Account adminapi.Account
	Jobs    []adminapi.Job
	Changes []changeView
}

func loadAccount(_ *Console, v *visitor, at location) (string, any, error) {
	ref := at.path("account")
	var view accountView
	if err := v.get(adminapi.PathAccounts+"/"+url.PathEscape(ref), &view.Account); err != nil {
		return "", nil, err
	}
	of := url.Values{"account": {"@" + strconv.FormatInt(view.Account.ID, 10)}, "limit": {"20"}}
	var jobs adminapi.JobList
	if err := v.get(adminapi.PathJobs+"?"+of.Encode(), &jobs); err != nil {
		return "", nil, err
	}
	view.Jobs = jobs.Jobs
	var audit adminapi.AuditList
	if err := v.get(adminapi.PathAudit+"?"+of.Encode(), &audit); err != nil {
		return "", nil, err
	}
	view.Changes = changes(audit.Events)
	return view.Account.Login, view, nil
}

// auditView is a page of the audit log.
type auditView struct {
	Changes                     []changeView
	Account, Pool, Since, Until string // as typed
	First, Next                 string
}

// changeView is an event, and what it made different.
type changeView struct {
	adminapi.AuditEvent
	Differences []auditchange.Difference
}

func loadAudit(_ *Console, v *visitor, at location) (string, any, error) {
	view := auditView{}
	query, base := url.Values{"limit": {strconv.Itoa(jobsPerPage)}}, url.Values{}
	for name, into := range map[string]*string{"account": &view.Account, "pool": &view.Pool, "since": &view.Since, "until": &view.Until} {
		if *into = strings.TrimSpace(at.query.Get(name)); *into != "" {
			query.Set(name, *into)
			base.Set(name, *into)
		}
	}
	if before := at.query.Get("before"); before != "" {
		query.Set("before", before)
		view.First = "/ui/audit?" + base.Encode()
	}
	var list adminapi.AuditList
	if err := v.get(adminapi.PathAudit+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Changes = changes(list.Events)
	if list.Next != 0 {
		base.Set("before", strconv.FormatInt(list.Next, 10))
		view.Next = "/ui/audit?" + base.Encode()
	}
	return "Audit", view, nil
}

func changes(events []adminapi.AuditEvent) []changeView {
	var list []changeView
	for _, event := range events {
		list = append(list, changeView{AuditEvent: event, Differences: auditchange.Of(event.Before, event.After)})
	}
	return list
}
