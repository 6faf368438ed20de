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
		polls:       vec("bullpen_dispatch_polls_total", "Polls answered, by answer.", "answer"),
		claims:      one("bullpen_dispatch_claims_total", "Pods claimed."),
		mints:       vec("bullpen_dispatch_mints_total", "JIT registrations asked for, by outcome.", "outcome"),
		stamps:      vec("bullpen_dispatch_owner_stamps_total", "Owner labels stamped, by outcome.", "outcome"),
		retires:     vec("bullpen_dispatch_retires_total", "Pods the controller asked for, by verdict.", "verdict"),
		adoptions:   vec("bullpen_dispatch_adoptions_total", "Runners named by GitHub without a live claim, by outcome.", "outcome"),
		matchErrors: one("bullpen_dispatch_match_errors_total", "Batches that failed and were tried again."),
		dropped:     one("bullpen_dispatch_dropped_tasks_total", "Projections left to a later pass because too many waited."),
		ambiguous: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_dispatch_ambiguous_label_sets",
			Help: "Label sets whose jobs wait because more than one live pool serves them.",
		}),
	}
	reg.MustRegister(m.ambiguous)
	return m
}
