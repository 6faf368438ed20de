package autoscaler

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics tell what is decided for each pool, by what for.
type metrics struct {
	passes    *prometheus.CounterVec
	decisions *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, a *Autoscaler) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bullpen", Subsystem: "autoscaler", Name: name, Help: help}, labels)
	}
	m := &metrics{
		passes:    counter("passes_total", "Passes over all pools, by outcome; no_data: at least one pool's data was missing and its size is unchanged.", "outcome"),
		decisions: counter("decisions_total", "Changes of the pool size, by direction.", "pool", "direction"),
	}
	for _, c := range []prometheus.Collector{m.passes, m.decisions, verdictCollector{a}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) forget(pool string) {
	m.decisions.DeletePartialMatch(prometheus.Labels{"pool": pool})
}

// verdictCollector reads what is published when it is asked, so that a pool that is gone leaves no series behind.
type verdictCollector struct{ autoscaler *Autoscaler }

var (
	desiredDesc = prometheus.NewDesc("bullpen_autoscaler_desired_runners", "Desired number of runners.", []string{"pool"}, nil)
	targetDesc  = prometheus.NewDesc("bullpen_autoscaler_target_runners", "Number of runners that the pool would have, ignoring node capacity.", []string{"pool"}, nil)
	grantedDesc = prometheus.NewDesc("bullpen_autoscaler_granted_runners", "Desired number of runners, by purpose.", []string{"pool", "purpose"}, nil)
	queuedDesc  = prometheus.NewDesc("bullpen_runnerpool_queued_jobs", "Queued jobs.", []string{"pool"}, nil)
	heldDesc    = prometheus.NewDesc("bullpen_runnerpool_blocked_jobs", "Blocked jobs.", []string{"pool"}, nil)
	oldestDesc  = prometheus.NewDesc("bullpen_runnerpool_oldest_queued_timestamp_seconds", "Time when the oldest queued job was queued.", []string{"pool"}, nil)
	blindDesc   = prometheus.NewDesc("bullpen_autoscaler_no_data", "1 while the autoscaler lacks data and the pool size is unchanged.", []string{"pool"}, nil)
)

// Describe implements prometheus.Collector.
func (verdictCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{desiredDesc, targetDesc, grantedDesc, blindDesc, queuedDesc, heldDesc, oldestDesc} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (c verdictCollector) Collect(found chan<- prometheus.Metric) {
	c.autoscaler.mu.RLock()
	defer c.autoscaler.mu.RUnlock()
	for key, v := range c.autoscaler.verdict {
		gauge := func(desc *prometheus.Desc, value int, labels ...string) {
			found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), append([]string{key.Name}, labels...)...)
		}
		if v.Demand != nil { // of every pool, as it was last read
			gauge(queuedDesc, v.Demand.Queued)
			gauge(heldDesc, v.Demand.Blocked)
			if !v.Demand.OldestQueued.IsZero() {
				gauge(oldestDesc, int(v.Demand.OldestQueued.Unix()))
			}
		}
		if !v.autoscaled {
			continue
		}
		if v.Blind != "" {
			gauge(desiredDesc, v.Desired)
			gauge(blindDesc, 1)
			continue // what was decided when it could be seen says nothing of now
		}
		gauge(desiredDesc, v.Desired)
		gauge(targetDesc, v.target)
		gauge(blindDesc, 0)
		for purpose, n := range map[string]int{
			"load": v.share.Load, "blocked": v.share.Blocked, "min_idle": v.share.Floor, "head_room": v.share.HeadRoom, "cooldown": v.share.Cooldown,
		} {
			gauge(grantedDesc, n, purpose)
		}
	}
}
