package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
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
	Differences []difference
}

// difference is one value that was changed; empty: there was none, or is none.
type difference struct{ Name, Was, Is string }

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
		list = append(list, changeView{AuditEvent: event, Differences: differences(event.Before, event.After)})
	}
	return list
}

// differences are the values that two states do not share, by name.
func differences(before, after json.RawMessage) []difference {
	was, is := leaves(before), leaves(after)
	names := map[string]bool{}
	for _, state := range []map[string]string{was, is} {
		for name := range state {
			names[name] = true
		}
	}
	var list []difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			list = append(list, inUnits(difference{Name: name, Was: was[name], Is: is[name]}))
		}
	}
	return list
}

// units are fields of limits whose unit is in their name: what users call them, and how they write their value.
var units = map[string]struct {
	name  string
	write func(int64) string
}{
	"milliCpu": {"CPUs", fleet.FormatCPU}, "memoryMb": {"memory", fleet.FormatMemory}, "jobsPerRepository": {"jobs per repository", decimal},
}

// inUnits is a difference as users write it. What is not a known field, or not a number, stays as it is.
func inUnits(d difference) difference {
	path := strings.Split(d.Name, " ")
	last := len(path) - 1
	unit, known := units[path[last]]
	if !known {
		return d
	}
	path[last] = unit.name
	d.Name = strings.Join(path, " ")
	for _, value := range []*string{&d.Was, &d.Is} {
		if n, err := strconv.ParseInt(*value, 10, 64); err == nil {
			*value = unit.write(n)
		}
	}
	return d
}

// leaves are the values of a JSON object, each by the names that lead to it. What is no object has none.
func leaves(raw json.RawMessage) map[string]string {
	found := map[string]string{}
	var walk func(name string, value any)
	walk = func(name string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(strings.TrimPrefix(name+" "+key, " "), inner)
			}
		case nil:
		case string:
			found[name] = v
		default:
			if text, err := json.Marshal(v); err == nil {
				found[name] = string(text)
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // an id is not to be rounded
	var value any
	if decoder.Decode(&value) == nil {
		walk("", value)
	}
	return found
}
