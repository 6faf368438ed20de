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
	route   string // the pattern of operator.Routes that serves it
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
		{name: "limit", kind: "integer", says: "Most entries of the page, 1 to 500; 100 if it is left out."},
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
	ofAccount := parameter{name: "account", kind: "string", says: "Only of this account, by login or @id."}
	return []operation{
		{
			route: "GET " + adminapi.PathAccounts, id: "listAccounts", tag: "accounts", says: "Lists accounts with what they use and what they may use, by login.",
			query:  append(page("after", "string", "Where the former page said that the next one begins."), parameter{name: "deleted", kind: "boolean", says: "Deleted ones too."}),
			answer: adminapi.AccountList{},
		},
		{route: "GET " + account, id: "getAccount", tag: "accounts", says: "Shows one account.", answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict}},
		{
			route: "PATCH " + account + "/limits", id: "changeLimits", tag: "accounts", says: "Changes limits of platforms; what is not named stays. If-Match is the account's ETag, or *.",
			ifMatch: "required", body: adminapi.ChangeLimits{}, needs: true, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed, unsaid},
		},
		{
			route: "POST " + account, path: account + ":suspend", id: "suspendAccount", tag: "accounts", says: "Withholds the account's queued jobs. What runs ends normally.",
			ifMatch: "optional", body: adminapi.Change{}, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed},
		},
		{
			route: "POST " + account, path: account + ":resume", id: "resumeAccount", tag: "accounts", says: "Takes an operator's suspension back.",
			ifMatch: "optional", body: adminapi.Change{}, answer: adminapi.Account{}, etag: true, errors: []int{notFound, conflict, changed},
		},
		{
			route: "DELETE " + account, id: "deleteAccount", tag: "accounts", says: "Forgets an account of which nothing runs and that has uninstalled the App.",
			query: []parameter{{name: "purge", kind: "boolean", says: "Its history too, at once."}}, ifMatch: "optional", body: adminapi.Change{},
			errors: []int{notFound, conflict, changed},
		},
		{
			route: "GET " + adminapi.PathAudit, id: "listAudit", tag: "audit", says: "Lists who changed what, the latest first.",
			query: append(page("before", "integer", "What the former page gave as next."), ofAccount), answer: adminapi.AuditList{}, errors: []int{notFound, conflict},
		},
		{
			route: "GET " + adminapi.PathUsage, id: "listUsage", tag: "usage", says: "Says what accounts have used, by month and pool: one month if there is only one of from and to, the present one if there is neither.",
			query: []parameter{
				{name: "from", kind: "string", says: "The first month, like 2026-11."}, {name: "to", kind: "string", says: "The last month."},
				ofAccount, {name: "after", kind: "integer", says: "What the former page gave as next."},
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
			route: "GET " + adminapi.PathJobs, id: "listJobs", tag: "jobs", says: "Lists jobs that wait or run, the latest first.",
			query: append(page("before", "integer", "What the former page gave as next."),
				parameter{name: "account", kind: "string", says: "Only of this account, by login or @id."},
				parameter{name: "repository", kind: "string", says: "Only of this repository, as owner/name."},
				parameter{name: "state", kind: "string", list: true, says: "Only in this state.", enum: []string{"waiting", "queued", "claimed", "minted", "executing", "completed", "cancelled", "stale"}},
				parameter{name: "ended", kind: "boolean", says: "Those that have ended, too."}),
			answer: adminapi.JobList{}, errors: []int{notFound, conflict},
		},
		{route: "GET " + job, id: "getJob", tag: "jobs", says: "Shows one job, and where its time went.", answer: adminapi.Job{}, errors: []int{notFound}},
		{route: "GET " + job + "/why", id: "whyJob", tag: "jobs", says: "Says why a job has no runner yet, or what became of it.", answer: adminapi.Why{}},
		{route: "GET " + adminapi.PathPools, id: "listPools", tag: "pools", says: "Lists pools with what they have and what waits for them, by name.", answer: adminapi.PoolList{}},
		{route: "GET " + adminapi.PathPools + "/{namespace}/{pool}", id: "getPool", tag: "pools", says: "Shows one pool.", answer: adminapi.Pool{}, errors: []int{notFound}},
		{
			route: "GET " + adminapi.PathPools + "/{namespace}/{pool}/history", id: "getPoolHistory", tag: "pools",
			says: "Returns the history of a pool: queue times, queued jobs and runners.", query: window, answer: adminapi.History{}, errors: []int{notFound},
		},
		{
			route: "GET " + adminapi.PathHistory, id: "getHistory", tag: "pools", says: "Returns the history of the fleet: of all pools together.",
			query: window, answer: adminapi.History{},
		},
		{route: "GET " + adminapi.PathHosts, id: "listHosts", tag: "hosts", says: "Lists the Macs that are prepared as nodes (kind MacHost), by name.", answer: adminapi.HostList{}},
		{
			route: "GET " + adminapi.PathRunners, id: "listRunners", tag: "runners", says: "Lists the runner pods of pools, by namespace and name.",
			query: append(page("after", "string", "What the former page gave as next."),
				parameter{name: "pool", kind: "string", says: "Only of this pool, as namespace/name."},
				parameter{name: "namespace", kind: "string", says: "Only in this namespace."},
				parameter{name: "stage", kind: "string", list: true, says: "Only in this stage.", enum: adminapi.RunnerStages()}),
			answer: adminapi.RunnerList{},
		},
		{
			route: "GET " + adminapi.PathRunners + "/{namespace}/{runner}/log", id: "getRunnerLog", tag: "runners",
			says: "Returns the last lines of a runner that died within the last week (404: nothing is kept of it).", answer: adminapi.RunnerLog{}, errors: []int{notFound},
		},
		{
			route: "POST " + adminapi.PathRunners + "/{namespace}/{runner}/retire", id: "retireRunner", tag: "runners",
			says: "Takes a runner that waits for work out of its pool; one that works is refused (409).", body: adminapi.Change{}, answer: adminapi.RetiredRunner{}, errors: []int{notFound, conflict},
		},
	}
}
