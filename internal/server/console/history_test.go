package console_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/history"
)

// sample records a minute of a pool, and of the fleet.
func (d *desk) sample(pool history.Pool, ago time.Duration, gauges history.Gauges, queued time.Duration, jobs int64) {
	d.t.Helper()
	at := time.Now().UTC().Add(-ago).Truncate(time.Minute)
	var samples []history.Sample
	for _, of := range []history.Pool{pool, {}} {
		samples = append(samples,
			history.Sample{Pool: of, At: at, Span: history.FineSpan, Minutes: 1, Sum: gauges, PeakQueued: gauges.Queued, PeakBusy: gauges.Busy},
		)
	}
	require.NoError(d.t, d.store.RecordSamples(d.t.Context(), samples))
	for i := range samples {
		samples[i] = history.Sample{
			Pool: samples[i].Pool, At: at, Span: history.FineSpan, QueueTimes: history.Histogram{}.With(history.Bucket(queued.Seconds()), jobs),
		}
	}
	require.NoError(d.t, d.store.RecordSamples(d.t.Context(), samples))
}

// past gives a pool and the fleet a fortnight of working days, with one interruption.
func (d *desk) past(pool history.Pool) {
	d.t.Helper()
	now := time.Now().UTC().Truncate(history.FineSpan)
	kept := now.Add(-history.MinutesKept).Truncate(history.CoarseSpan)
	moment := func(at time.Time, span time.Duration) history.Sample {
		clock := float64(at.Hour()) + float64(at.Minute())/60
		load := math.Max(.05, math.Sin((clock-6)/24*2*math.Pi)) * (1 + .25*math.Sin(float64(at.Unix()/900)))
		busy := int64(math.Min(24, 26*load))
		n := int64(span / history.FineSpan)
		queued := int64(math.Max(0, 40*load-24))
		g := history.Gauges{Queued: n * queued, Busy: n * busy, Idle: n * 3, Starting: n * (int64(at.Minute()) / 15 % 3), Capacity: n * 30}
		s := history.Sample{At: at, Span: span, Minutes: n, Sum: g, PeakQueued: queued + at.Unix()/60%7*queued/10, PeakBusy: busy}
		s.QueueTimes = history.Histogram{}.With(history.Bucket(2+float64(queued)), 3+busy).With(history.Bucket(8+12*float64(queued)), 1)
		return s
	}
	var samples []history.Sample
	add := func(s history.Sample) {
		for _, of := range []history.Pool{pool, {}} {
			s.Pool = of
			samples = append(samples, s)
		}
	}
	for at := now.Add(-14 * 24 * time.Hour).Truncate(history.CoarseSpan); at.Before(kept); at = at.Add(history.CoarseSpan) {
		add(moment(at, history.CoarseSpan))
	}
	for at := kept; !at.After(now); at = at.Add(history.FineSpan) {
		if ago := now.Sub(at); ago < 7*time.Hour || ago > 8*time.Hour {
			add(moment(at, history.FineSpan))
		}
	}
	require.NoError(d.t, d.store.RecordSamples(d.t.Context(), samples))
}

var (
	scripts = regexp.MustCompile(`(?s)<script.*?</script>`)
	tags    = regexp.MustCompile(`<[^>]*>`)
)

// The overview and a pool's page show the last 24 hours and 14 days as charts and as a table, without a script.
func TestHistory_IsShownAsChartsAndAsATable(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	page := func(path string) string {
		resp := d.ask("GET", path, ada, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		return scripts.ReplaceAllString(body(t, resp), "")
	}
	linux := history.Pool{Namespace: "runners", Name: "linux-4"}
	d.sample(linux, 2*time.Hour, history.Gauges{Queued: 7, Busy: 3, Idle: 1, Starting: 2, Capacity: 6}, 90*time.Second, 4)
	d.sample(linux, 5*24*time.Hour, history.Gauges{Queued: 40, Busy: 6, Capacity: 6}, time.Hour, 1)
	for _, path := range []string{"/ui/", "/ui/pools/runners/linux-4"} {
		text := page(path)
		require.Equal(t, 3, strings.Count(text, "<figure"), path)
		require.Equal(t, 3, strings.Count(text, `role="img"`))
		require.Regexp(t, `<path class="line p95" d="M[0-9. ]+h0"/>`, text, "one step between two gaps")
		require.Regexp(t, `<path class="area busy" d="M[^"]+Z"/>`, text)
		require.Regexp(t, `<desc id="queue-time-text">95 % of the jobs started within 1m\d\ds at most, at `, text)
		rows := regexp.MustCompile(`(?s)<caption>Steps of 15 minutes.*?</table>`).FindString(text)
		require.Equal(t, 1, strings.Count(rows, "<tr><th scope=\"row\">"), "steps of which nothing is known are left out")
		require.Contains(t, strings.Join(strings.Fields(tags.ReplaceAllString(rows, " ")), " "), " 4 7 3 1 2 6")
		require.NotRegexp(t, `\sstyle=`, text)

		long := page(path + "?window=14d")
		rows = regexp.MustCompile(`(?s)<caption>Steps of 4 hours.*?</table>`).FindString(long)
		require.Equal(t, 2, strings.Count(rows, "<tr><th scope=\"row\">"))
		require.Contains(t, long, `?window=14d" aria-current="true"`)
		require.Contains(t, long, `<a href="`+path+`?window=24h">`)
		require.Contains(t, long, `data-live="`+path+`?window=14d"`, "it is kept up to date as it is shown")
	}
	require.Contains(t, page("/ui/pools/runners/linux-4?stage=busy"), `?stage=busy&amp;window=14d"`, "a filter stays")
	require.Equal(t, http.StatusBadRequest, d.ask("GET", "/ui/?window=1y", ada, "").StatusCode)
}

// A fleet that has just begun says so, in place of empty charts.
func TestHistory_SaysThatThereIsNone(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	for _, path := range []string{"/ui/", "/ui/pools/runners/linux-4?window=14d"} {
		text := body(t, d.ask("GET", path, ada, ""))
		require.Contains(t, text, "No samples yet")
		require.NotContains(t, text, "<figure")
	}
}

// A job's page shows its phases as bars, with name and duration.
func TestJob_HasItsTimelineAsBars(t *testing.T) {
	d := newDesk(t)
	d.serve(1)
	text := body(t, d.ask("GET", "/ui/jobs/100", d.session(adas), ""))
	table := regexp.MustCompile(`(?s)<table class="shares phases">.*?</table>`).FindString(text)
	require.NotEmpty(t, table)
	bars := regexp.MustCompile(`<svg class="hbar" width="100%" height="14" aria-hidden="true"><rect class="([a-z]+)" x="([0-9.]+)%" width="([0-9.]+)%"`).FindAllStringSubmatch(table, -1)
	require.NotEmpty(t, bars)
	require.Equal(t, strings.Count(table, `<th scope="row">`), len(bars))
	require.Contains(t, table, `class="dispatch"`)
	require.NotRegexp(t, `\sstyle=`, text)
}

// Usage is shown by day, by month where there are many, and by account where there are several.
func TestUsage_HasDaysAndAccountsAsBars(t *testing.T) {
	d := newDesk(t)
	d.serve(2)
	ada, now := d.session(adas), time.Now().UTC()
	text := body(t, d.ask("GET", "/ui/usage", ada, ""))
	require.Equal(t, now.Day(), strings.Count(text, `<rect class="column"`), "each day of the month up to today")
	require.Contains(t, text, "Runner hours by day as a table")
	require.Regexp(t, `<tr><th scope="row">`+now.Format(adminapi.DayFormat)+`</th><td[^>]*>0\.\d\d</td><td[^>]*>0\.\d\d</td><td[^>]*>2</td></tr>`, text)
	require.NotContains(t, text, "By account", "one is compared with nothing")

	long := body(t, d.ask("GET", "/ui/usage?from="+now.AddDate(0, 0, 1-now.Day()).AddDate(0, -5, 0).Format(adminapi.MonthFormat)+"&to="+now.Format(adminapi.MonthFormat), ada, ""))
	require.Contains(t, long, "Runner hours by month as a table")
	require.Equal(t, 6, strings.Count(long, `<rect class="column"`))
	require.Zero(t, d.api.count(adminapi.PathUsageByDay)-1, "days are read where they are shown")
	require.NotContains(t, body(t, d.ask("GET", "/ui/usage?from=2020-01", ada, "")), "<figure")
}

// Accounts are compared by their runner hours, the largest first; of many, the first are.
func TestUsage_ComparesAccounts(t *testing.T) {
	d := newDesk(t, func(o *console.Options) {
		real := o.API
		o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != adminapi.PathUsage {
				real.ServeHTTP(w, r)
				return
			}
			list := adminapi.UsageList{AsOf: time.Now()}
			for id := int64(1); id <= 20; id++ {
				for _, pool := range []string{"linux", "macs"} {
					list.Usage = append(list.Usage, adminapi.MonthUsage{Account: fmt.Sprint("org-", id), AccountID: id, Month: "2026-11", Pool: pool, RunnerSeconds: 1800 * float64(id)})
				}
			}
			_ = json.NewEncoder(w).Encode(list)
		})
	})
	text := body(t, d.ask("GET", "/ui/usage", d.session(adas), ""))
	table := regexp.MustCompile(`(?s)<table class="shares">.*?</table>`).FindString(text)
	rows := regexp.MustCompile(`<a href="/ui/accounts/@(\d+)">org-\d+</a></th><td[^>]*>.*?width="([0-9.]+)%" height="14" rx="2"/></svg></td><td class="number"[^>]*>([0-9.]+)</td>`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 15)
	require.Equal(t, []string{"20", "100.00", "20.00"}, rows[0][1:])
	require.Equal(t, []string{"10", "50.00", "10.00"}, rows[10][1:])
	require.Contains(t, text, "5 more accounts used less")
}
