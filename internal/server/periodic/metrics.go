package periodic

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	runs     *prometheus.CounterVec
	duration *prometheus.HistogramVec
	success  *prometheus.GaugeVec
	checks   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, passes map[string]Pass) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_pass_runs_total", Help: "Runs of a pass on this replica, by outcome.",
		}, []string{"pass", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bullpen_pass_duration_seconds", Help: "Duration of runs of a pass.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}, []string{"pass"}),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bullpen_pass_last_success_timestamp_seconds",
			Help: "Time of the last success of a pass on any replica, as read from the database; " +
				"before the first success, when the pass was first known. It does not change while the database is unreachable.",
		}, []string{"pass"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_pod_checks_total", Help: "Targeted checks of a pod, by outcome.",
		}, []string{"outcome"}),
	}
	reg.MustRegister(m.runs, m.duration, m.success, m.checks)
	for name := range passes { // a rate needs the first failure to follow a zero
		m.runs.WithLabelValues(name, outcomeOK)
		m.runs.WithLabelValues(name, outcomeFailed)
	}
	return m
}

func (m *metrics) succeeded(pass string, at time.Time) {
	m.success.WithLabelValues(pass).Set(float64(at.UnixMilli()) / 1000)
}
