package intake

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// metrics have pools and phases as labels, which an administrator has made or are few, and nothing that comes from GitHub but kinds of events.
type metrics struct {
	webhooks *prometheus.CounterVec
	waits    *prometheus.HistogramVec
	phases   *prometheus.HistogramVec
}

// waitBuckets are in seconds: a job that a warm runner takes is under one, and one that waits for a machine takes minutes.
var waitBuckets = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 1800}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_webhooks_total", Help: "Webhook deliveries, by event and outcome.",
		}, []string{"event", "outcome"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bullpen_job_wait_seconds", Buckets: waitBuckets,
			Help: "Queue time of a job: from queued, or approved, to running.",
		}, []string{"pool"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "bullpen_job_phase_seconds", Buckets: waitBuckets,
			Help: "Duration of each phase before a job started: webhook, approval, dispatch, registration, handover, start.",
		}, []string{"pool", "phase"}),
	}
	for _, c := range []prometheus.Collector{m.webhooks, m.waits, m.phases} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the intake's metrics: %w", err)
		}
	}
	return m, nil
}

// observe counts a job once: when one of our runners has been given it.
func (m *metrics) observe(started *dispatch.Started) {
	if started == nil {
		return
	}
	var wait float64
	for _, spent := range started.Times.Split() {
		m.phases.WithLabelValues(started.Pool, string(spent.Phase)).Observe(spent.Time.Seconds())
		wait += spent.Time.Seconds()
		if spent.Phase == fleet.PhaseApproval { // until here it was not ours to run
			wait = 0
		}
	}
	m.waits.WithLabelValues(started.Pool).Observe(wait)
}
