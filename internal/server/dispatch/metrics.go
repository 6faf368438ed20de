package dispatch

import "github.com/prometheus/client_golang/prometheus"

// metrics carry no account, job or pod as a label: those have no bound.
type metrics struct {
	polls       *prometheus.CounterVec
	claims      prometheus.Counter
	mints       *prometheus.CounterVec
	stamps      *prometheus.CounterVec
	retires     *prometheus.CounterVec
	adoptions   *prometheus.CounterVec
	ambiguous   prometheus.Gauge
	matchErrors prometheus.Counter
	dropped     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		reg.MustRegister(c)
		return c
	}
	one := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		polls:       vec("bullpen_dispatch_polls_total", "Polls, by response.", "answer"),
		claims:      one("bullpen_dispatch_claims_total", "Pods claimed."),
		mints:       vec("bullpen_dispatch_registrations_total", "Requests for JIT configurations, by outcome.", "outcome"),
		stamps:      vec("bullpen_dispatch_owner_label_writes_total", "Writes of owner labels, by outcome.", "outcome"),
		retires:     vec("bullpen_dispatch_retires_total", "Retirements requested by the controller, by verdict.", "verdict"),
		adoptions:   vec("bullpen_dispatch_adoptions_total", "Runners reported by GitHub without a live claim, by outcome.", "outcome"),
		matchErrors: one("bullpen_dispatch_match_errors_total", "Claim batches that failed and were retried."),
		dropped:     one("bullpen_dispatch_dropped_tasks_total", "Owner label updates left to a later pass because the queue was full."),
		ambiguous: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_dispatch_ambiguous_label_sets",
			Help: "Label sets whose jobs stay queued because more than one pool serves them.",
		}),
	}
	reg.MustRegister(m.ambiguous)
	return m
}
