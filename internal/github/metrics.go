package github

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// metrics of the calls out. Labels are few by construction: operations are constants of this package, outcomes those
// of outcome, installations as many as the cache holds.
type metrics struct {
	requests *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, installations *cache) (*metrics, error) {
	m := &metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_github_requests_total",
		Help: "Calls to GitHub by operation and outcome.",
	}, []string{"operation", "outcome"})}
	if registerer == nil {
		return m, nil
	}
	return m, errors.Join(registerer.Register(m.requests), registerer.Register(&rateCollector{
		installations: installations,
		remaining: prometheus.NewDesc("bullpen_github_rate_remaining",
			"Requests that GitHub last said are left in a bucket.", []string{"installation", "resource"}, nil),
	}))
}

func (m *metrics) count(operation string, err error) {
	m.requests.WithLabelValues(operation, outcome(err)).Inc()
}

func isLimited(err error) bool {
	var limited *fleet.RateLimitedError
	return errors.As(err, &limited)
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case isLimited(err):
		return "rate_limited"
	case errors.Is(err, fleet.ErrRunnerBusy):
		return "busy"
	case errors.Is(err, fleet.ErrNotFound):
		return "not_found"
	case errors.Is(err, fleet.ErrForbidden):
		return "forbidden"
	case errors.Is(err, fleet.ErrUncertain):
		return "uncertain"
	default:
		return "rejected"
	}
}

// rateCollector reads the limits when it is scraped, so that a forgotten installation leaves no series behind.
type rateCollector struct {
	installations *cache
	remaining     *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r *rateCollector) Describe(out chan<- *prometheus.Desc) { out <- r.remaining }

// Collect implements prometheus.Collector.
func (r *rateCollector) Collect(out chan<- prometheus.Metric) {
	for _, in := range r.installations.all() {
		for _, state := range in.rates.all() {
			metric, err := prometheus.NewConstMetric(r.remaining, prometheus.GaugeValue, float64(state.Remaining),
				strconv.FormatInt(in.id, 10), state.Resource)
			if err != nil {
				metric = prometheus.NewInvalidMetric(r.remaining, fmt.Errorf("collecting rate limits: %w", err))
			}
			out <- metric
		}
	}
}
