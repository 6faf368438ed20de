package registration

import (
	"fmt"
	"maps"

	"github.com/prometheus/client_golang/prometheus"
)

var limitRemaining = prometheus.NewDesc("bullpen_registration_rate_remaining",
	"Remaining requests in a quota at GitHub, as last reported, by the Secret of the credentials; the lowest of several installations.",
	[]string{"secret_namespace", "secret", "resource"}, nil)

// limitCollector reads the limits of the clients that are kept, when it is scraped: a client that was dropped leaves no series
// behind. The installation's own App has metrics of its own.
type limitCollector struct{ hub *Hub }

// Describe implements prometheus.Collector.
func (c *limitCollector) Describe(out chan<- *prometheus.Desc) { out <- limitRemaining }

// Collect implements prometheus.Collector.
func (c *limitCollector) Collect(out chan<- prometheus.Metric) {
	c.hub.mu.Lock()
	kept := maps.Clone(c.hub.accounts)
	c.hub.mu.Unlock()
	for credentials, one := range kept {
		for _, state := range one.client.Limits() {
			metric, err := prometheus.NewConstMetric(limitRemaining, prometheus.GaugeValue, float64(state.Remaining),
				credentials.Namespace, credentials.Secret, state.Resource)
			if err != nil {
				metric = prometheus.NewInvalidMetric(limitRemaining, fmt.Errorf("collecting rate limits: %w", err))
			}
			out <- metric
		}
	}
}
