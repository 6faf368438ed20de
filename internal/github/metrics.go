package github

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Metrics of the calls out. Labels are few by construction: operations are constants of this package, outcomes those
// of outcome, installations as many as the cache holds.
type Metrics struct {
	requests *prometheus.CounterVec
}

// NewMetrics makes and registers metrics for several clients to share; nil: they are not exported.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_github_requests_total",
		Help: "Requests to GitHub, by operation and outcome.",
	}, []string{"operation", "outcome"})}
	if registerer == nil {
		return m, nil
	}
	return m, registerer.Register(m.requests)
}

// measure gives the client its metrics.
func (c *Client) measure() (err error) {
	if c.metrics == nil {
		if c.metrics, err = NewMetrics(c.options.Registerer); err != nil {
			return err
		}
	}
	if c.options.Registerer == nil {
		return nil
	}
	return c.options.Registerer.Register(&rateCollector{
		client: c,
		remaining: prometheus.NewDesc("bullpen_github_rate_remaining",
			"Remaining requests in a quota at GitHub, as last reported.", []string{"installation", "resource"}, nil),
	})
}

// operationLabels are the operations' values of the label. The constants are phrases, for errors.
var operationLabels = map[string]string{
	opMint: "create_jit_config", opRemove: "remove_runner", opRunner: "get_runner", opFind: "find_runner", opList: "list_runners",
	opRoster: "list_all_runners", opControl: "get_scope", opRepos: "list_installation_repositories", opToken: "create_registration_token",
	opGroup: "find_runner_group", opGroupAccess: "get_runner_group_access", opInstalled: "find_installation", opRepository: "get_repository",
	opRepositoryID: "find_repository", opJob: "get_job", opRun: "get_run", opRuns: "list_runs", opReadRun: "check_runs",
	opRunJobs: "list_run_jobs", opRerun: "rerun_job", opDeliveries: "list_deliveries", opPayload: "get_delivery", opRedeliver: "redeliver",
	opInstallations: "list_installations", opApp: "get_app", opHookConfig: "get_webhook_config", opProveKey: "prove_key",
	opConvert: "convert_manifest",
}

func (m *Metrics) count(operation string, err error) {
	m.requests.WithLabelValues(operationLabels[operation], outcome(err)).Inc()
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
	client    *Client
	remaining *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r *rateCollector) Describe(out chan<- *prometheus.Desc) { out <- r.remaining }

// Collect implements prometheus.Collector.
func (r *rateCollector) Collect(out chan<- prometheus.Metric) {
	connections := r.client.cache.all()
	if r.client.hasToken() {
		connections = []*installation{r.client.own}
	}
	for _, in := range connections {
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
