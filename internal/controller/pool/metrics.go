package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// metrics counts what happens to the runners of each pool. A pool's name is a label, a runner's never is.
type metrics struct {
	creations       *prometheus.CounterVec
	removals        *prometheus.CounterVec
	removalFailures *prometheus.CounterVec
	reportFailures  *prometheus.CounterVec
	verdicts        *prometheus.CounterVec
	statusWrites    *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, t *tracker) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bullpen", Subsystem: "runnerpool", Name: name, Help: help},
			append([]string{"pool"}, labels...))
	}
	m := &metrics{
		creations:       counter("creations_total", "Runner creations, by outcome.", "outcome"),
		removals:        counter("removals_total", "Runner pods whose deletion was accepted, by reason.", "reason"),
		removalFailures: counter("removal_failures_total", "Removal steps that failed and are retried."),
		reportFailures:  counter("report_failures_total", "Reports of exited runners to the server that failed and are retried."),
		verdicts:        counter("fence_answers_total", "Responses of the fence, by verdict. Unknown deletes nothing.", "verdict"),
		statusWrites:    counter("status_writes_total", "Writes of a pool's status."),
	}
	for _, c := range []prometheus.Collector{m.creations, m.removals, m.removalFailures, m.reportFailures, m.verdicts, m.statusWrites, stageCollector{t}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) fence(pool string, verdict lifecycle.Verdict) {
	name := "unknown"
	switch verdict {
	case lifecycle.Granted:
		name = "granted"
	case lifecycle.Busy:
		name = "busy"
	}
	m.verdicts.WithLabelValues(pool, name).Inc()
}

// stageCollector reads the stages when it is asked, so that a pool that is gone leaves no series behind.
type stageCollector struct{ tracker *tracker }

var stageDesc = prometheus.NewDesc("bullpen_runnerpool_runners", "Runners by stage.", []string{"pool", "stage"}, nil)

var stuckDesc = prometheus.NewDesc("bullpen_runnerpool_stuck_terminating",
	"Pods that are not deleted in time: their node or a finalizer keeps them, or the API server rejects their deletion.", []string{"pool"}, nil)

var saturatedDesc = prometheus.NewDesc("bullpen_runnerpool_saturated",
	"1 while jobs are queued and the pool is at its maximum with no idle runner: its condition Saturated.", []string{"pool"}, nil)

var starvedDesc = prometheus.NewDesc("bullpen_runnerpool_starved",
	"1 while desired runners cannot start: its condition Starved.", []string{"pool"}, nil)

// Describe implements prometheus.Collector.
func (stageCollector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- stageDesc
	descriptions <- stuckDesc
	descriptions <- saturatedDesc
	descriptions <- starvedDesc
}

// Collect implements prometheus.Collector.
func (c stageCollector) Collect(found chan<- prometheus.Metric) {
	c.tracker.each(func(state *poolState) {
		counts := state.counts("")
		for _, stage := range lifecycle.Stages() {
			found <- prometheus.MustNewConstMetric(stageDesc, prometheus.GaugeValue, float64(counts.of[stage]), state.key.Name, stage.String())
		}
		found <- prometheus.MustNewConstMetric(stuckDesc, prometheus.GaugeValue, float64(counts.stuck), state.key.Name) // POOL-10
		saturated, starved := state.short()
		found <- prometheus.MustNewConstMetric(saturatedDesc, prometheus.GaugeValue, one(saturated), state.key.Name)
		found <- prometheus.MustNewConstMetric(starvedDesc, prometheus.GaugeValue, one(starved), state.key.Name)
	})
}

func one(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
