package console

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/console/chart"
)

// historyView is the history of the fleet or of a pool: charts, and the same numbers as a table.
type historyView struct {
	Windows  []windowLink
	Empty    bool // no samples
	Charts   []chart.Chart
	Points   []adminapi.HistoryPoint // those with samples or started jobs, newest first
	StepText string
}

// windowLink is a link to the page with another window.
type windowLink struct {
	To, Text string
	Current  bool
}

// readHistory requests a history. Links to other windows lead to page, with the query keep.
func readHistory(v *visitor, path string, at location, page string, keep url.Values) (historyView, error) {
	query := url.Values{}
	if window := at.query.Get("window"); window != "" {
		query.Set("window", window)
	}
	var h adminapi.History
	if err := v.get(path+"?"+query.Encode(), &h); err != nil {
		return historyView{}, err
	}
	return newHistoryView(h, page, keep), nil
}

func newHistoryView(h adminapi.History, page string, keep url.Values) historyView {
	view := historyView{Empty: true, StepText: spell(time.Duration(h.StepSeconds) * time.Second)}
	for _, w := range []struct {
		window adminapi.HistoryWindow
		text   string
	}{{adminapi.History24Hours, "24 hours"}, {adminapi.History14Days, "14 days"}} {
		query := url.Values{"window": {string(w.window)}}
		for name, values := range keep {
			query[name] = values
		}
		view.Windows = append(view.Windows, windowLink{To: page + "?" + query.Encode(), Text: w.text, Current: w.window == h.Window})
	}
	for i := len(h.Points) - 1; i >= 0; i-- {
		if p := h.Points[i]; p.SampledMinutes > 0 || p.StartedJobs > 0 {
			view.Points = append(view.Points, p)
		}
	}
	if len(view.Points) > 0 {
		view.Empty, view.Charts = false, historyCharts(h)
	}
	return view
}

// spell writes a step in words.
func spell(step time.Duration) string {
	if step < time.Hour {
		return strconv.Itoa(int(step/time.Minute)) + " minutes"
	}
	return strconv.Itoa(int(step/time.Hour)) + " hours"
}

// historyCharts draws queue times, queued jobs and runners.
func historyCharts(h adminapi.History) []chart.Chart {
	gauge := func(value func(adminapi.HistoryPoint) float64) []float64 {
		return valuesOf(h, func(p adminapi.HistoryPoint) (float64, bool) { return value(p), p.SampledMinutes > 0 })
	}
	wait := func(value func(adminapi.HistoryPoint) *float64) []float64 {
		return valuesOf(h, func(p adminapi.HistoryPoint) (float64, bool) {
			if seconds := value(p); seconds != nil {
				return *seconds, true
			}
			return 0, false
		})
	}
	p50, p95 := wait(func(p adminapi.HistoryPoint) *float64 { return p.QueueTimeP50 }), wait(func(p adminapi.HistoryPoint) *float64 { return p.QueueTimeP95 })
	queued := gauge(func(p adminapi.HistoryPoint) float64 { return float64(p.PeakQueued) })
	busy := gauge(func(p adminapi.HistoryPoint) float64 { return p.Busy })
	plots := []chart.Plot{
		{
			ID: "queue-time", Title: "Queue time", Unit: chart.Seconds, Summary: highestOf(h, "95 % of the jobs started within", p95, chart.Seconds),
			Lines: []chart.Series{{Class: "p50", Label: "p50", Values: p50}, {Class: "p95", Label: "p95", Values: p95}},
		},
		{
			ID: "queued-jobs", Title: "Queued jobs", Unit: chart.Count, Summary: highestOf(h, "Queued jobs, highest of each step:", queued, chart.Count),
			Areas: []chart.Series{{Class: "queued", Label: "queued, highest of each step", Values: queued}},
		},
		{
			ID: "runner-numbers", Title: "Runners", Unit: chart.Count, Summary: highestOf(h, "Busy runners, mean of each step:", busy, chart.Count),
			Areas: []chart.Series{
				{Class: "busy", Label: "busy", Values: busy},
				{Class: "idle", Label: "idle", Values: gauge(func(p adminapi.HistoryPoint) float64 { return p.Idle })},
				{Class: "starting", Label: "starting", Values: gauge(func(p adminapi.HistoryPoint) float64 { return p.Starting })},
			},
			Lines: []chart.Series{{
				Class: "capacity", Label: "capacity", Ceiling: true, Values: gauge(func(p adminapi.HistoryPoint) float64 { return p.Capacity }),
			}},
		},
	}
	charts := make([]chart.Chart, len(plots))
	for i, plot := range plots {
		plot.From, plot.To = h.From, h.To
		charts[i] = plot.Draw()
	}
	return charts
}

// valuesOf returns one value per step; NaN where it is unknown.
func valuesOf(h adminapi.History, value func(adminapi.HistoryPoint) (float64, bool)) []float64 {
	values := make([]float64, len(h.Points))
	for i, p := range h.Points {
		known := false
		if values[i], known = value(p); !known {
			values[i] = math.NaN()
		}
	}
	return values
}

// highestOf describes a chart for screen readers: its highest and its latest value.
func highestOf(h adminapi.History, what string, values []float64, unit chart.Unit) string {
	highest, latest := -1, -1
	for i, value := range values {
		if math.IsNaN(value) {
			continue
		}
		latest = i
		if highest < 0 || value > values[highest] {
			highest = i
		}
	}
	if latest < 0 {
		return what + " nothing is known."
	}
	at := func(i int) string { return h.Points[i].At.UTC().Format("2006-01-02 15:04") + " UTC" }
	tenth := func(value float64) float64 { return math.Round(value*10) / 10 }
	return fmt.Sprintf("%s %s at most, at %s; last %s, at %s.", what, unit.Label(tenth(values[highest])), at(highest), unit.Label(tenth(values[latest])), at(latest))
}

// chartFunctions are the functions of templates/charts.html.
var chartFunctions = template.FuncMap{
	"day": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") },
	// A quantile is an estimate: it has no more than tenths of a second.
	"queuetime": func(seconds *float64) string {
		if seconds == nil {
			return "–"
		}
		return chart.Seconds.Label(math.Round(*seconds*10) / 10)
	},
	"mean": func(value float64) string { return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) },
	"hbar": func(class string, start, wide float64) partView { return partView{class, start, wide} },
}

// partView is a part of a bar's width, in percent.
type partView struct {
	Class       string
	Start, Wide float64
}
