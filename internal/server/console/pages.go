package console

import (
	"context"
	"net/http"
	"net/url"
)

// page is one of the console's pages. Its load sends requests to the admin API and nowhere else.
type page struct {
	pattern  string // of its path
	template string
	nav      string // which entry of the menu it belongs to
	load     func(c *Console, v *visitor, at location) (title string, data any, err error)
	// still: it is read for each request, with the rights of its user, and is never live; a live page is read repeatedly, once for all its
	// viewers.
	still bool
}

// location is what of an address a page depends on.
type location struct {
	path  func(name string) string // a part of the path
	query url.Values
}

func pages() []page {
	return []page{
		{"/ui/{$}", "overview.html", "overview", loadOverview, false},
		{"/ui/jobs", "jobs.html", "jobs", loadJobs, false},
		{"/ui/jobs/{job}", "job.html", "jobs", loadJob, false},
		{"/ui/jobs/{job}/log", "log.html", "jobs", loadLog, true},
		{"/ui/pools", "pools.html", "pools", loadPools, false},
		{"/ui/pools/{namespace}/{pool}", "pool.html", "pools", loadPool, false},
		{"/ui/nodes", "nodes.html", "nodes", loadNodes, false},
		{"/ui/accounts", "accounts.html", "accounts", loadAccounts, false},
		{"/ui/accounts/{account}", "account.html", "accounts", loadAccount, false},
		{"/ui/usage", "usage.html", "usage", loadUsage, true},
		{"/ui/audit", "audit.html", "audit", loadAudit, false},
		{"/ui/recovery", "recovery.html", "recovery", loadRecovery, false},
	}
}

// servePage shows a page, or the way to log in.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request, p page) {
	who, err := c.caller(r)
	if err != nil {
		toLogin(w, r)
		return
	}
	made, _, err := c.make(r.Context(), p, who, r)
	if err != nil {
		c.fail(w, r, p.pattern, err)
		return
	}
	if !p.still {
		made.Live = r.URL.RequestURI()
	}
	c.render(w, http.StatusOK, p.template, made)
}

// make asks for what a page shows, and says what it asked.
func (c *Console) make(ctx context.Context, p page, who caller, r *http.Request) (shown, []string, error) {
	v := &visitor{ctx: ctx, api: c.opt.API, who: who}
	title, data, err := p.load(c, v, location{path: r.PathValue, query: r.URL.Query()})
	made := shown{Title: title, Tab: title, Who: who.name, Nav: p.nav, Data: data}
	if named, ok := data.(interface{ Tab() string }); ok {
		made.Tab = named.Tab()
	}
	return made, v.asked, err
}

func toLogin(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/ui/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
}

// refusePage says in a page why there is none.
func (c *Console) refusePage(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	who, err := c.caller(r)
	title := refusals[status]
	if title == "" {
		title = http.StatusText(status)
	}
	c.render(w, status, "refused.html", shown{Title: title, Who: who.name, Bare: err != nil, Data: sentence})
}

// refusals are the titles of pages that there are not.
var refusals = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusForbidden: "Access denied", http.StatusNotFound: "Not found", http.StatusConflict: "Conflict",
	http.StatusServiceUnavailable: "Temporarily unavailable", http.StatusInternalServerError: "Error",
}
