package main

import (
	"net/http"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// parameter is one of a query.
type parameter struct {
	name, says string
	kind       string // string, integer or boolean
	list       bool   // it may be repeated
	enum       []string
}

// operation is one thing that the API does. The right that it needs comes from the route.
type operation struct {
	route   string // the pattern of admin.Routes that serves it
	path    string // its path, where the pattern stands for several; else empty
	id, tag string
	says    string
	query   []parameter
	ifMatch string // "", "optional" or "required"
	body    any
	needs   bool // the body
	answer  any  // nil: 204 without a body
	etag    bool
	errors  []int // beside those that every operation has
}

// page are the parameters of lists that come in pages.
func page(cursor, kind, says string) []parameter {
	return []parameter{
		{name: "limit", kind: "integer", says: "Maximum number of entries, 1 to 500. Default: 100."},
		{name: cursor, kind: kind, says: says},
	}
}

const (
	notFound = http.StatusNotFound
	conflict = http.StatusConflict
	changed  = http.StatusPreconditionFailed
	unsaid   = http.StatusPreconditionRequired
)

// operations are all of them. A new route needs one here: the tests compare with the handler's routes, with the names of the
// parameters that it reads, and with what it answers.
func operations() []operation {
	return append(accountOperations(), fleetOperations()...)
}

func accountOperations() []operation {
	account := adminapi.PathAccounts + "/{account}"
	ofAccount := parameter{name: "account", kind: "string", says: "Filter by account: login or @id."}
	return []operation{
		{
			route: "GET " + adminapi.PathAccounts, id: "listAccounts", tag: "accounts", says: "Lists accounts with their usage and limits, by login.",
			query:  append(page("after", "string", "The value of next of the previous page."), parameter{name: "deleted", kind: "boolean", says: "Include deleted accounts."}),
			answer: adminapi.AccountList{},
		},
		{route: "GET " + account, id: "getAccount", tag: "accounts", says: "Returns an account.", answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict}},
		{
			route: "PATCH " + account + "/limits", id: "changeLimits", tag: "accounts", says: "Changes limits per platform; others are kept. If-Match must be the account's ETag, or *.",
			ifMatch: "required", body: adminapi.ChangeLimits{}, needs: true, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed, unsaid},
		},
		{
			route: "POST " + account, path: account + ":suspend", id: "suspendAccount", tag: "accounts", says: "Blocks the account's queued jobs. Running jobs are not affected.",
			ifMatch: "optional", body: adminapi.Change{}, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed},
		},
		{
			route: "POST " + account, path: account + ":resume", id: "resumeAccount", tag: "accounts", says: "Ends an administrator's suspension.",
			ifMatch: "optional", body: adminapi.Change{}, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed},
		},
		{
			route: "DELETE " + account, id: "deleteAccount", tag: "accounts", says: "Deletes an account without running jobs that has uninstalled the App.",
			query: []parameter{{name: "purge", kind: "boolean", says: "Delete its history, too."}}, ifMatch: "optional", body: adminapi.Change{},
			errors: []int{notFound, conflict, changed},
		},
		{
			route: "GET " + adminapi.PathAudit, id: "listAudit", tag: "audit", says: "Lists changes, newest first.",
			query: append(page("before", "integer", "The value of next of the previous page."), ofAccount,
				parameter{name: "pool", kind: "string", says: "Filter by pool: name or namespace/name. Not together with account."},
				parameter{name: "since", kind: "string", says: "Only changes since this time (RFC 3339), or this date in UTC."},
				parameter{name: "until", kind: "string", says: "Only changes before this time (RFC 3339), or this date in UTC."},
			),
			answer: adminapi.AuditList{}, errors: []int{notFound, conflict},
		},
		{
			route: "GET " + adminapi.PathUsage, id: "listUsage", tag: "usage", says: "Lists the usage of accounts by month and pool. With only one of from and to: that month; with neither: the current month.",
			query: []parameter{
				{name: "from", kind: "string", says: "The first month, such as 2026-11."}, {name: "to", kind: "string", says: "The last month."},
				ofAccount, {name: "after", kind: "integer", says: "The value of next of the previous page."},
			},
			answer: adminapi.UsageList{}, errors: []int{notFound, conflict},
		},
		{
			route: "GET " + adminapi.PathUsageByDay, id: "listUsageByDay", tag: "usage", says: "Returns what accounts have used by day, of all pools together. Months are chosen as for usage.",
			query: []parameter{
				{name: "from", kind: "string", says: "The first month, like 2026-11."}, {name: "to", kind: "string", says: "The last month."}, ofAccount,
			},
			answer: adminapi.DayUsageList{}, errors: []int{notFound, conflict},
		},
	}
}

func fleetOperations() []operation {
	job := adminapi.PathJobs + "/{job}"
	window := []parameter{{name: "window", kind: "string", says: "The time range; 24h by default.", enum: []string{string(adminapi.History24Hours), string(adminapi.History14Days)}}}
	return []operation{
		{
			route: "GET " + adminapi.PathJobs, id: "listJobs", tag: "jobs", says: "Lists jobs that are not completed, newest first.",
			query: append(page("before", "integer", "The value of next of the previous page."),
				parameter{name: "account", kind: "string", says: "Filter by account: login or @id."},
				parameter{name: "repository", kind: "string", says: "Filter by repository: owner/name; without a slash, a part of it."},
				parameter{name: "name", kind: "string", says: "Filter by name: a part of it."},
				parameter{name: "conclusion", kind: "string", list: true, says: "Filter completed jobs by conclusion.", enum: adminapi.Conclusions()},
				parameter{name: "state", kind: "string", list: true, says: "Filter by state.", enum: adminapi.JobStates()},
				parameter{name: "ended", kind: "boolean", says: "Include completed jobs."}),
			answer: adminapi.JobList{}, errors: []int{notFound, conflict},
		},
		{
			route: "GET " + adminapi.PathConclusions, id: "countConclusions", tag: "jobs",
			says: "Counts the conclusions of the last hour's completed jobs, of the newest 1,000 at most.", answer: adminapi.ConclusionCounts{},
		},
		{route: "GET " + job, id: "getJob", tag: "jobs", says: "Returns a job with its timeline.", answer: adminapi.Job{}, errors: []int{notFound}},
		{route: "GET " + job + "/why", id: "whyJob", tag: "jobs", says: "Explains why a job has no runner yet, or its outcome.", answer: adminapi.Why{}},
		{route: "GET " + adminapi.PathPools, id: "listPools", tag: "pools", says: "Lists pools with their runners and demand, by name.", answer: adminapi.PoolList{}},
		{route: "GET " + adminapi.PathPools + "/{namespace}/{pool}", id: "getPool", tag: "pools", says: "Returns a pool.", answer: adminapi.Pool{}, errors: []int{notFound}},
		{
			route: "GET " + adminapi.PathPools + "/{namespace}/{pool}/history", id: "getPoolHistory", tag: "pools",
			says: "Returns the history of a pool: queue times, queued jobs and runners.", query: window, answer: adminapi.History{}, errors: []int{notFound},
		},
		{
			route: "GET " + adminapi.PathHistory, id: "getHistory", tag: "pools", says: "Returns the history of the fleet: of all pools together.",
			query: window, answer: adminapi.History{},
		},
		{route: "GET " + adminapi.PathHosts, id: "listHosts", tag: "hosts", says: "Lists MacHosts, by name.", answer: adminapi.HostList{}},
		{
			route: "GET " + adminapi.PathRunners, id: "listRunners", tag: "runners", says: "Lists the runner pods of pools, by namespace and name.",
			query: append(page("after", "string", "The value of next of the previous page."),
				parameter{name: "pool", kind: "string", says: "Filter by pool: namespace/name."},
				parameter{name: "namespace", kind: "string", says: "Filter by namespace."},
				parameter{name: "stage", kind: "string", list: true, says: "Filter by stage.", enum: adminapi.RunnerStages()}),
			answer: adminapi.RunnerList{},
		},
		{
			route: "GET " + adminapi.PathRunners + "/{namespace}/{runner}/log", id: "getRunnerLog", tag: "runners",
			says: "Returns the last log lines of a runner that failed within 7 days (404: none).", answer: adminapi.RunnerLog{}, errors: []int{notFound},
		},
		{
			route: "POST " + adminapi.PathRunners + "/{namespace}/{runner}/retire", id: "retireRunner", tag: "runners",
			says: "Removes an idle runner; a busy one is rejected (409).", body: adminapi.Change{}, answer: adminapi.RetiredRunner{}, errors: []int{notFound, conflict},
		},
	}
}
