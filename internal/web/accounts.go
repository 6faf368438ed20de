package web

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/bullpen-ci/bullpen/internal/operatorapi"
)

// accountsView is a page of accounts.
type accountsView struct {
	Accounts    []operatorapi.Account
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
	var list operatorapi.AccountList
	if err := v.get(operatorapi.PathAccounts+"?"+query.Encode(), &list); err != nil {
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
	Account operatorapi.Account
	Jobs    []operatorapi.Job
	Changes []changeView
}

func loadAccount(_ *Console, v *visitor, at location) (string, any, error) {
	ref := at.path("account")
	var view accountView
	if err := v.get(operatorapi.PathAccounts+"/"+url.PathEscape(ref), &view.Account); err != nil {
		return "", nil, err
	}
	of := url.Values{"account": {"@" + strconv.FormatInt(view.Account.ID, 10)}, "limit": {"20"}}
	var jobs operatorapi.JobList
	if err := v.get(operatorapi.PathJobs+"?"+of.Encode(), &jobs); err != nil {
		return "", nil, err
	}
	view.Jobs = jobs.Jobs
	var audit operatorapi.AuditList
	if err := v.get(operatorapi.PathAudit+"?"+of.Encode(), &audit); err != nil {
		return "", nil, err
	}
	view.Changes = changes(audit.Events)
	return view.Account.Login, view, nil
}

// auditView is a page of the audit log.
type auditView struct {
	Changes     []changeView
	Account     string
	First, Next string
}

// changeView is an event, with what was and what is in one line each.
type changeView struct {
	operatorapi.AuditEvent
	Was, Is string
}

func loadAudit(_ *Console, v *visitor, at location) (string, any, error) {
	view := auditView{Account: at.query.Get("account")}
	query, base := url.Values{"limit": {strconv.Itoa(jobsPerPage)}}, url.Values{}
	if view.Account != "" {
		query.Set("account", view.Account)
		base.Set("account", view.Account)
	}
	if before := at.query.Get("before"); before != "" {
		query.Set("before", before)
		view.First = "/ui/audit?" + base.Encode()
	}
	var list operatorapi.AuditList
	if err := v.get(operatorapi.PathAudit+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Changes = changes(list.Events)
	if list.Next != 0 {
		base.Set("before", strconv.FormatInt(list.Next, 10))
		view.Next = "/ui/audit?" + base.Encode()
	}
	return "Audit", view, nil
}

func changes(events []operatorapi.AuditEvent) []changeView {
	var list []changeView
	for _, event := range events {
		list = append(list, changeView{AuditEvent: event, Was: line(event.Before), Is: line(event.After)})
	}
	return list
}

func line(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}
