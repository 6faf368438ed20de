package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// mostUsage is how many rows of usage a page shows: for more, download a file.
const mostUsage = 200

// usageView is what accounts have used.
type usageView struct {
	From, To, Account string // as the address has them
	Usage             []adminapi.MonthUsage
	Cut               bool                 // there are more rows than the page shows
	Total             *adminapi.MonthUsage // of all rows; nil where they are too many to be read at once, or one
	AsOf              time.Time
	Charts            usageCharts
	CSV, JSON         string // where the same is downloaded, whole
}

// loadUsage sums up whole months, and counts open sessions up to the time of reading: a page of it is read when it is opened, and not every
// two seconds.
func loadUsage(_ *Console, v *visitor, at location) (string, any, error) {
	view := usageView{From: at.query.Get("from"), To: at.query.Get("to"), Account: at.query.Get("account")}
	base := usageQuery(at.query)
	with := func(path string, query url.Values) string {
		if len(query) == 0 {
			return path
		}
		return path + "?" + query.Encode()
	}
	view.CSV, view.JSON = with(pathUsageCSV, base), with(pathUsageJSON, base)
	var list adminapi.UsageList
	if err := v.get(with(adminapi.PathUsage, base), &list); err != nil {
		return "", nil, err
	}
	view.Usage, view.AsOf, view.Cut = list.Usage, list.AsOf, list.Next != 0
	if list.Next == 0 && len(view.Usage) > 1 {
		view.Total = totalOf(view.Usage)
	}
	if len(view.Usage) > mostUsage {
		view.Usage, view.Cut = view.Usage[:mostUsage], true
	}
	var err error
	view.Charts, err = readUsageCharts(v, base, list)
	return "Usage", view, err
}

// usageQuery is what of an address says which usage is meant.
func usageQuery(from url.Values) url.Values {
	query := url.Values{}
	for _, name := range []string{"from", "to", "account"} {
		if value := from.Get(name); value != "" {
			query.Set(name, value)
		}
	}
	return query
}

func totalOf(usage []adminapi.MonthUsage) *adminapi.MonthUsage {
	var sum adminapi.MonthUsage
	for _, u := range usage {
		sum.Sessions += u.Sessions
		sum.Jobs += u.Jobs
		sum.RunnerSeconds += u.RunnerSeconds
		sum.JobSeconds += u.JobSeconds
		sum.CPUSeconds += u.CPUSeconds
		sum.MemoryGiBSeconds += u.MemoryGiBSeconds
	}
	return &sum
}

// Where usage is downloaded.
const (
	pathUsageCSV  = "/ui/usage.csv"
	pathUsageJSON = "/ui/usage.json"
)

// downloadUsage responds with a file, as `bullpen usage -o` writes it, to users who may read usage (NET-5). It is complete or an error:
// every page is read before anything is written.
func (c *Console) downloadUsage(w http.ResponseWriter, r *http.Request) {
	who, err := c.caller(r)
	if err != nil {
		toLogin(w, r)
		return
	}
	v := &visitor{ctx: r.Context(), api: c.opt.API, who: who}
	query := usageQuery(r.URL.Query())
	usage, month := []adminapi.MonthUsage{}, ""
	for {
		var list adminapi.UsageList
		if err := v.get(adminapi.PathUsage+"?"+query.Encode(), &list); err != nil {
			c.fail(w, r, r.URL.Path, err)
			return
		}
		usage, month = append(usage, list.Usage...), list.AsOf.UTC().Format(adminapi.MonthFormat)
		if list.Next == 0 {
			break
		}
		query.Set("after", strconv.FormatInt(list.Next, 10))
	}
	var file bytes.Buffer
	kind, write := "json", func() error { return json.NewEncoder(&file).Encode(usage) }
	if r.URL.Path == pathUsageCSV {
		kind, write = "csv", func() error { return adminapi.WriteUsageCSV(&file, usage) }
	}
	if err := write(); err != nil {
		c.fail(w, r, r.URL.Path, err)
		return
	}
	from := cmp.Or(query.Get("from"), query.Get("to"), month) // the API has taken them for months
	name := "bullpen-usage-" + from
	if to := cmp.Or(query.Get("to"), from); to != from {
		name += "-" + to
	}
	h := w.Header()
	h.Set("Content-Type", map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}[kind])
	h.Set("Content-Disposition", `attachment; filename="`+name+"."+kind+`"`)
	_, _ = w.Write(file.Bytes()) // the client has gone
}
