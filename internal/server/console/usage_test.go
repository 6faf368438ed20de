package console_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/console"
)

// serve has the desk run the given number of jobs of an installed account, each on a pod of its own.
func (d *desk) serve(jobs int) {
	d.t.Helper()
	for i := range jobs {
		id := int64(100 + i)
		d.tell("queued", id)
		d.die(id, fmt.Sprintf("linux-4-s%d", i), fmt.Sprintf("00000000-0000-4000-8000-%012d", 1000+i), "gone")
	}
}

// The usage page shows what `bullpen usage` prints, summed up, and hands the same out as files.
func TestUsage_IsShownAndDownloaded(t *testing.T) {
	d := newDesk(t)
	d.serve(3)
	ada, month := d.session(adas), time.Now().UTC().Format(adminapi.MonthFormat)
	text := func(path string) string {
		resp := d.ask("GET", path, ada, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body(t, resp), " ")), " ")
	}
	require.Contains(t, text("/ui/usage"), "acme "+month+" linux-4 3 3 0.00")
	require.Contains(t, text("/ui/usage?from=2020-01&to=2020-02"), "No runner was used in these months")
	require.Contains(t, body(t, d.ask("GET", "/ui/usage?account=acme&from="+month, ada, "")), `href="/ui/usage.csv?account=acme&amp;from=`+month+`"`)
	require.NotContains(t, body(t, d.ask("GET", "/ui/usage", ada, "")), "data-live", "whole months are not summed up every two seconds")
	require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/stream?view="+url.QueryEscape("/ui/usage"), ada, "").StatusCode)
	require.Equal(t, http.StatusBadRequest, d.ask("GET", "/ui/usage?from=May", ada, "").StatusCode)

	resp := d.ask("GET", "/ui/usage.csv", ada, "")
	require.Equal(t, `attachment; filename="bullpen-usage-`+month+`.csv"`, resp.Header.Get("Content-Disposition"))
	require.Equal(t, "text/csv; charset=utf-8", resp.Header.Get("Content-Type"))
	rows, err := csv.NewReader(strings.NewReader(body(t, resp))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []string{"acme", "1", month, "runners", "linux-4", "linux", "3", "3"}, rows[1][:8])

	resp = d.ask("GET", "/ui/usage.json?from=2020-01&to="+"2020-02", ada, "")
	require.Equal(t, `attachment; filename="bullpen-usage-2020-01-2020-02.json"`, resp.Header.Get("Content-Disposition"))
	require.JSONEq(t, "[]", body(t, resp), "a list, as an empty one is")
	var usage []adminapi.MonthUsage
	require.NoError(t, json.Unmarshal([]byte(body(t, d.ask("GET", "/ui/usage.json?account=acme", ada, ""))), &usage))
	require.Len(t, usage, 1)
	require.EqualValues(t, 3, usage[0].Sessions)
}

// NET-5: a file is served to users who may read usage, and to no other.
func TestUsage_NET5_FilesAreForWhoMaySeeThem(t *testing.T) {
	d := newDesk(t)
	d.serve(1)
	ada, bob := d.session(adas), d.session(bobs)
	for _, path := range []string{"/ui/usage.csv", "/ui/usage.json"} {
		resp := d.ask("GET", path, "", "")
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		require.NotContains(t, body(t, resp), "acme")
		resp = d.ask("GET", path, bob, "")
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.Empty(t, resp.Header.Get("Content-Disposition"))
		require.NotContains(t, body(t, resp), "acme")
		require.Equal(t, http.StatusBadRequest, d.ask("GET", path+"?from=May", ada, "").StatusCode)
	}
}

// A page of usage is bounded, and says so; a file is whole, however many pages the API has it in.
func TestUsage_APageIsBoundedAndAFileIsWhole(t *testing.T) {
	const rows = 1500
	d := newDesk(t, func(o *console.Options) {
		real := o.API
		o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != adminapi.PathUsage {
				real.ServeHTTP(w, r)
				return
			}
			list := adminapi.UsageList{AsOf: time.Now(), Next: rows}
			from, to := int64(1), int64(rows)
			if r.URL.Query().Get("after") != "" {
				from, to, list.Next = rows+1, 2*rows, 0
			}
			for id := from; id <= to; id++ {
				list.Usage = append(list.Usage, adminapi.MonthUsage{Account: fmt.Sprint("org-", id), AccountID: id, Month: "2026-11", Sessions: 1})
			}
			_ = json.NewEncoder(w).Encode(list)
		})
	})
	ada := d.session(adas)
	page := body(t, d.ask("GET", "/ui/usage", ada, ""))
	require.Equal(t, 200, strings.Count(page, `<th scope="row"><a`))
	require.Contains(t, page, "These are the first 200 rows")
	require.NotContains(t, page, "<tfoot>", "a sum of a part would be taken for that of all")
	require.Less(t, len(page), 200_000)
	lines := strings.Split(strings.TrimSpace(body(t, d.ask("GET", "/ui/usage.csv", ada, ""))), "\n")
	require.Len(t, lines, 1+2*rows)
	require.True(t, strings.HasPrefix(lines[2*rows], fmt.Sprint("org-", 2*rows, ",")))
}
