package registered

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

type metrics struct {
	answers   *prometheus.CounterVec
	removals  prometheus.Counter
	abandoned prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_registered_fence_answers_total", Help: "Responses of the fence for self-registering runners, by verdict.",
		}, []string{"verdict"}),
		removals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bullpen_registered_removals_total", Help: "Removed pods of self-registering runners.",
		}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bullpen_registered_abandoned_total", Help: "Registrations of exited runners that could not be removed at GitHub.",
		}),
	}
	for _, c := range []prometheus.Collector{m.answers, m.removals, m.abandoned} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) fence(verdict lifecycle.Verdict) {
	label := "unknown"
	switch verdict {
	case lifecycle.Granted:
		label = "granted"
	case lifecycle.Busy:
		label = "busy"
	case lifecycle.Unknown:
	}
	m.answers.WithLabelValues(label).Inc()
}
