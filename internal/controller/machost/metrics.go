package machost

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have no label that names a host: there may be many, and they come and go.
type metrics struct {
	attempts *prometheus.CounterVec
	duration prometheus.Histogram
}

var (
	hostsDesc   = prometheus.NewDesc("bullpen_machost_hosts", "MacHosts by state.", []string{"state"}, nil)
	runningDesc = prometheus.NewDesc("bullpen_machost_attempts_running", "Running attempts.", nil, nil)
)

func newMetrics(registry prometheus.Registerer, r *Reconciler) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "bullpen", Subsystem: "machost", Name: "attempts_total", Help: "Completed attempts, by outcome.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "bullpen", Subsystem: "machost", Name: "attempt_duration_seconds", Help: "Duration of attempts.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600},
		}),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.duration, collector{r}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) attempt(outcome Outcome, took time.Duration) {
	m.attempts.WithLabelValues(string(outcome)).Inc()
	m.duration.Observe(took.Seconds())
}

// collector reads the states at each scrape, so that a host that is gone no longer counts.
type collector struct{ r *Reconciler }

// Describe implements prometheus.Collector.
func (collector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- hostsDesc
	descriptions <- runningDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(found chan<- prometheus.Metric) {
	counts := map[State]int{}
	for _, state := range *c.r.states.Load() {
		counts[state]++
	}
	for _, state := range States() {
		found <- prometheus.MustNewConstMetric(hostsDesc, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
	found <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(c.r.crew.atWork()))
}
