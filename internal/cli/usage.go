package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// UsageFilter selects usage.
type UsageFilter struct {
	From, To string // months like 2026-11; empty: the current one
	Account  string // login or "@id"; empty: all
}

// Usage reads what accounts have used.
func (c *Client) Usage(ctx context.Context, f UsageFilter) ([]adminapi.MonthUsage, error) {
	query := url.Values{}
	for key, value := range map[string]string{"account": f.Account, "from": f.From, "to": f.To} {
		if value != "" {
			query.Set(key, value)
		}
	}
	usage := []adminapi.MonthUsage{}
	for {
		var page adminapi.UsageList
		if err := c.call(ctx, http.MethodGet, adminapi.PathUsage, query, "", nil, &page); err != nil {
			return nil, err
		}
		usage = append(usage, page.Usage...)
		if page.Next == 0 {
			return usage, nil
		}
		query.Set("after", strconv.FormatInt(page.Next, 10))
	}
}

// PrintUsage writes usage as a table for people, or in full precision for programs.
func PrintUsage(w io.Writer, o *Output, usage []adminapi.MonthUsage) error {
	if o.format != FormatCSV {
		return Rows[adminapi.MonthUsage]{Kind: "usage", Table: usageTable}.Print(w, o, usage)
	}
	usage, err := sorted(usage, o.sortBy)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := adminapi.WriteUsageCSV(&text, usage); err != nil {
		return err
	}
	if o.noHeaders {
		_, _ = text.ReadString('\n') // there is always a line of headers
	}
	_, err = text.WriteTo(w)
	return err
}

func usageTable(usage []adminapi.MonthUsage) Table {
	t := Table{
		Columns: []string{"ACCOUNT", "MONTH", "POOL", "SESSIONS", "JOBS", "RUNNER HOURS", "JOB HOURS"},
		Wide:    []string{"PLATFORM", "CPU HOURS", "GIB HOURS", "NAMESPACE", "ACCOUNT ID"},
		Empty:   "No usage in these months.",
	}
	hours := func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', 2, 64) }
	for _, u := range usage {
		t.Rows = append(t.Rows, []string{
			u.Account, u.Month, u.Pool, strconv.FormatInt(u.Sessions, 10), strconv.FormatInt(u.Jobs, 10), hours(u.RunnerSeconds), hours(u.JobSeconds),
			u.Platform, hours(u.CPUSeconds), hours(u.MemoryGiBSeconds), u.Namespace, strconv.FormatInt(u.AccountID, 10),
		})
	}
	return t
}
