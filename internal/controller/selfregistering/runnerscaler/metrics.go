package runnerscaler

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics tell what the scaler does. What is said of single owners has their names, and goes with them; nothing names a job.
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
		passes:    counter("passes_total", "Passes over all owners of self-registering runners, by outcome. One that is blind for some owner does not lower that owner's number.", "outcome"),
		decisions: counter("decisions_total", "Changes of an owner's number of self-registering runners, by the owner's kind and direction.", "kind", "direction"),
		writes:    counter("writes_total", "Writes of status.autoscaling, by outcome.", "outcome"),
		readings:  counter("queue_readings_total", "Readings of GitHub's queue of one repository, by outcome.", "outcome"),
		desired:   gauge("desired_runners", "Self-registering runners that the owner is to have."),
		blind:     gauge("blind", "1 while the owner's number does not fall, because something that it depends on cannot be read."),
		queued:    gauge("queued_jobs", "Jobs that wait for a runner of the owner."),
		running:   gauge("running_jobs", "Jobs that run on the owner's runners."),
	}
	for _, c := range []prometheus.Collector{m.passes, m.decisions, m.writes, m.readings, m.desired, m.blind, m.queued, m.running} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// show tells of all owners there are, and of no others any more.
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

// shown is an owner that gauges speak of.
type shown struct{ kind, name string }
