package catchup

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	deliveries *prometheus.CounterVec
	spent      *prometheus.CounterVec
	lag        prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_catchup_deliveries_total",
			Help: "Webhook deliveries that were missed, by outcome: found, requested, fetched, failed, expired.",
		}, []string{"outcome"}),
		spent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_catchup_quota_exhausted_total",
			Help: "Times that a pass stopped because its share of GitHub's request quota was exhausted, by pass.",
		}, []string{"pass"}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_catchup_deliveries_read_timestamp_seconds",
			Help: "Time when GitHub's list of deliveries was last read completely; the latest of all replicas applies.",
		}),
	}
	if err := errors.Join(registerer.Register(m.deliveries), registerer.Register(m.spent), registerer.Register(m.lag)); err != nil {
		return nil, fmt.Errorf("registering the metrics of catching up: %w", err)
	}
	return m, nil
}
