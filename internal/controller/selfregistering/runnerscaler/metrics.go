package runnerscaler

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the scaler's. Those of single owners carry their names, and are deleted with them; none names a job.
type metrics struct {
	passes, decisions, writes, readings *prometheus.CounterVec
	desired, blind, queued, running     *prometheus.GaugeVec
	shown                               map[shown]bool // of the passes alone
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bullpen", Subsystem: "runnerscaler", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "bullpen", Subsystem: "runnerscaler", Name: name, Help: help}, []string{"kind", "name"})
	}
	m := &metrics{
		passes:    counter("passes_total", "Passes over all owners of self-registering runners, by outcome; no_data: an owner's data was missing and its number is not lowered.", "outcome"),
		decisions: counter("decisions_total", "Changes of an owner's number of self-registering runners, by the owner's kind and direction.", "kind", "direction"),
		writes:    counter("writes_total", "Writes of status.autoscaling, by outcome.", "outcome"),
		readings:  counter("queue_readings_total", "Reads of GitHub's queue of a repository, by outcome.", "outcome"),
		desired:   gauge("desired_runners", "Desired number of self-registering runners."),
		blind:     gauge("no_data", "1 while the autoscaler lacks data and the number of runners does not fall."),
		queued:    gauge("queued_jobs", "Queued jobs for the owner's runners."),
		running:   gauge("running_jobs", "Running jobs on the owner's runners."),
	}
	for _, c := range []prometheus.Collector{m.passes, m.decisions, m.writes, m.readings, m.desired, m.blind, m.queued, m.running} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// show sets the metrics of all present owners, and removes those of others.
func (m *metrics) show(todo []change) {
	now := make(map[shown]bool, len(todo))
	for _, c := range todo {
		blind := 0.0
		if c.result.Problem != "" {
			blind = 1
		}
		one := shown{c.owner.kind, c.owner.name}
		now[one] = true
		m.desired.WithLabelValues(one.kind, one.name).Set(float64(c.result.State.Desired))
		m.blind.WithLabelValues(one.kind, one.name).Set(blind)
		m.queued.WithLabelValues(one.kind, one.name).Set(float64(c.result.Queued))
		m.running.WithLabelValues(one.kind, one.name).Set(float64(c.result.Running))
	}
	for one := range m.shown {
		if !now[one] {
			for _, g := range []*prometheus.GaugeVec{m.desired, m.blind, m.queued, m.running} {
				g.DeleteLabelValues(one.kind, one.name)
			}
		}
	}
	m.shown = now
}

// shown is an owner with gauges.
type shown struct{ kind, name string }
