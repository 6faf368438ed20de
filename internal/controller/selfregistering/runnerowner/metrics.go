package runnerowner

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// metrics counts what happens to self-registering runners. The kind of their owners is a label; names, which teams choose, never
// are: see the conditions of each owner.
type metrics struct {
	kind                                    string
	creations, removals, verdicts, failures *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, kind string, t *tracker) (*metrics, error) {
	m := &metrics{kind: kind}
	for _, c := range []struct {
		to                **prometheus.CounterVec
		name, help, label string
	}{
		{&m.creations, "creations_total", "Runner creations, by outcome.", "outcome"},
		{&m.removals, "removals_total", "Runners whose deletion was accepted, by reason.", "reason"},
		{&m.verdicts, "fence_answers_total", "Responses of the fence at GitHub, by verdict. Unknown deletes nothing.", "verdict"},
		{&m.failures, "failures_total", "Steps that failed and are retried, by step.", "step"},
	} {
		vector := prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "bullpen", Subsystem: "runner_owner", Name: c.name, Help: c.help,
		}, []string{"kind", c.label})
		if err := registry.Register(vector); err != nil { // the other kind may have been first
			known := prometheus.AlreadyRegisteredError{}
			if !errors.As(err, &known) {
				return nil, err
			}
			existing, is := known.ExistingCollector.(*prometheus.CounterVec)
			if !is {
				return nil, err
			}
			vector = existing
		}
		*c.to = vector
	}
	return m, registry.Register(&stageCollector{tracker: t, desc: prometheus.NewDesc("bullpen_runner_owner_runners",
		"Self-registering runners by stage.", []string{"stage"}, prometheus.Labels{"kind": kind})})
}

func (m *metrics) fence(verdict lifecycle.Verdict) {
	name := "unknown"
	switch verdict {
	case lifecycle.Granted:
		name = "granted"
	case lifecycle.Busy:
		name = "busy"
	}
	m.verdicts.WithLabelValues(m.kind, name).Inc()
}

// stageCollector adds the stages up when it is asked.
type stageCollector struct {
	tracker *tracker
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *stageCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.desc }

// Collect implements prometheus.Collector.
func (c *stageCollector) Collect(found chan<- prometheus.Metric) {
	of := map[lifecycle.Stage]int{}
	c.tracker.each(func(s *ownerState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, stage := range lifecycle.Stages() {
			of[stage] += s.runners.Count(stage)
		}
	})
	for _, stage := range lifecycle.Stages() {
		found <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(of[stage]), stage.String())
	}
}
