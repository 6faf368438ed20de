package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/console/chart"
)

// phaseBar is a phase of a job, as a part of its whole duration.
type phaseBar struct {
	Phase   string
	Seconds float64
	Whole   bool       // Seconds are right to the second only
	Since   *time.Time // start of the current phase; nil: it is over
	chart.Span
}

// phaseBars places the phases of a timeline one after another, the current one last.
func phaseBars(t *adminapi.Timeline, now time.Time) []phaseBar {
	if t == nil {
		return nil
	}
	var bars []phaseBar
	for _, phase := range t.Split {
		bars = append(bars, phaseBar{Phase: phase.Name, Seconds: phase.Seconds, Whole: phase.WholeSeconds})
	}
	if open := t.Open; open != nil {
		bars = append(bars, phaseBar{Phase: open.Name, Seconds: max(0, now.Sub(open.Since).Seconds()), Whole: true, Since: &open.Since})
	}
	lengths := make([]float64, len(bars))
	for i, bar := range bars {
		lengths[i] = bar.Seconds
	}
	for i, span := range chart.Spans(lengths) {
		bars[i].Span = span
	}
	return bars
}

// usageCharts are runner hours over time, and by account.
type usageCharts struct {
	Time     *chart.Chart // nil: nothing to show
	Rows     []usageRow
	What     string // what a row is: Day or Month
	Accounts []accountShare
	Others   int // accounts not shown
}

// usageRow is the usage of a day or month.
type usageRow struct {
	At                 string
	RunnerSeconds, Job float64 // seconds
	Jobs               int64
}

// accountShare is the usage of one account, relative to the largest.
type accountShare struct {
	Name    string
	ID      int64
	Seconds float64
	Wide    float64 // percent
}

const (
	// mostDayMonths is up to how many months are shown by day.
	mostDayMonths = 2
	mostShares    = 15
)

// readUsageCharts requests days for short spans. An incomplete list is not added up: the sums would be too low.
func readUsageCharts(v *visitor, base url.Values, list adminapi.UsageList) (usageCharts, error) {
	var view usageCharts
	if len(list.Usage) == 0 {
		return view, nil
	}
	if list.Next == 0 {
		view.Accounts, view.Others = accountShares(list.Usage)
	}
	from, before := usageSpan(base, list.AsOf)
	if from.AddDate(0, mostDayMonths, 0).Before(before) {
		view.What = "Month"
		if list.Next == 0 {
			view.Rows = monthRows(list.Usage, from, before)
		}
	} else {
		var days adminapi.DayUsageList
		if err := v.get(adminapi.PathUsageByDay+"?"+base.Encode(), &days); err != nil {
			return view, err
		}
		view.What, view.Rows = "Day", dayRows(days.Usage, from, before, list.AsOf)
	}
	if len(view.Rows) > 0 {
		drawn := usageChart(view.What, view.Rows)
		view.Time = &drawn
	}
	return view, nil
}

// usageSpan returns the months of a query. The API has validated them.
func usageSpan(base url.Values, now time.Time) (from, before time.Time) {
	month := now.UTC().Format(adminapi.MonthFormat)
	first := cmp.Or(base.Get("from"), base.Get("to"), month)
	from, _ = time.ParseInLocation(adminapi.MonthFormat, first, time.UTC)
	last, _ := time.ParseInLocation(adminapi.MonthFormat, cmp.Or(base.Get("to"), first), time.UTC)
	return from, last.AddDate(0, 1, 0)
}

// dayRows returns one row for each day up to now, also without usage.
func dayRows(usage []adminapi.DayUsage, from, before, now time.Time) (rows []usageRow) {
	used := map[string]adminapi.DayUsage{}
	for _, day := range usage {
		used[day.Day] = day
	}
	for day := from; day.Before(before) && !day.After(now); day = day.AddDate(0, 0, 1) {
		name := day.Format(adminapi.DayFormat)
		u := used[name]
		rows = append(rows, usageRow{At: name, RunnerSeconds: u.RunnerSeconds, Job: u.JobSeconds, Jobs: u.Jobs})
	}
	return rows
}

func monthRows(usage []adminapi.MonthUsage, from, before time.Time) (rows []usageRow) {
	used := map[string]usageRow{}
	for _, u := range usage {
		row := used[u.Month]
		used[u.Month] = usageRow{RunnerSeconds: row.RunnerSeconds + u.RunnerSeconds, Job: row.Job + u.JobSeconds, Jobs: row.Jobs + u.Jobs}
	}
	for month := from; month.Before(before); month = month.AddDate(0, 1, 0) {
		row := used[month.Format(adminapi.MonthFormat)]
		row.At = month.Format(adminapi.MonthFormat)
		rows = append(rows, row)
	}
	return rows
}

func usageChart(what string, rows []usageRow) chart.Chart {
	columns := make([]chart.Column, len(rows))
	var total float64
	most := rows[0]
	for i, row := range rows {
		hours := row.RunnerSeconds / 3600
		columns[i] = chart.Column{Label: row.At[len(row.At)-len("26"):], Says: fmt.Sprintf("%s: %.2f hours", row.At, hours), Value: hours}
		if total += hours; row.RunnerSeconds > most.RunnerSeconds {
			most = row
		}
	}
	title := "Runner hours by day"
	if what == "Month" {
		title = "Runner hours by month"
	}
	summary := fmt.Sprintf("%s hours from %s to %s; most, %s, on %s.", strconv.FormatFloat(total, 'f', 2, 64), rows[0].At, rows[len(rows)-1].At,
		strconv.FormatFloat(most.RunnerSeconds/3600, 'f', 2, 64), most.At)
	return chart.Columns("runner-hours", title, summary, chart.Hours, columns)
}

// accountShares returns the accounts with the most usage and the number of the others. A single account needs no comparison.
func accountShares(usage []adminapi.MonthUsage) (shares []accountShare, others int) {
	sums := map[int64]accountShare{}
	for _, u := range usage {
		sums[u.AccountID] = accountShare{Name: u.Account, ID: u.AccountID, Seconds: sums[u.AccountID].Seconds + u.RunnerSeconds}
	}
	if len(sums) < 2 {
		return nil, 0
	}
	shares = slices.SortedFunc(maps.Values(sums), func(a, b accountShare) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Name, b.Name))
	})
	if len(shares) > mostShares {
		shares, others = shares[:mostShares], len(shares)-mostShares
	}
	for i := range shares {
		shares[i].Wide = chart.Share(shares[i].Seconds, shares[0].Seconds)
	}
	return shares, others
}
