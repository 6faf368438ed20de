package node

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics are those of the node. No label names a pod: the number of pods over time is unbounded.
type metrics struct {
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	ended      *prometheus.CounterVec
	renewals   *prometheus.CounterVec
	freed      prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "bullpen", Subsystem: "node", Name: name, Help: help}, labels)
	}
	return &metrics{
		operations: counter("operations_total", "Pod operations and image removals, by result: ok, error or canceled.", "operation", "result"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "bullpen", Subsystem: "node", Name: "operation_duration_seconds", Help: "Duration of successful pod operations.",
			Buckets: []float64{.01, .05, .25, 1, 5, 15, 60, 300, 1200},
		}, []string{"operation"}),
		ended:    counter("containers_exited_total", "Exited containers, by result: ok, failed or unknown.", "result"),
		renewals: counter("lease_renewals_total", "Renewals of the node's lease, by result: ok or error.", "result"),
		freed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "bullpen", Subsystem: "node", Name: "images_freed_bytes_total", Help: "Bytes freed by removing images.",
		}),
	}
}

// operation counts one step.
func (m *metrics) operation(name string, err error, took time.Duration) {
	switch {
	case err == nil:
		m.operations.WithLabelValues(name, "ok").Inc()
		m.durations.WithLabelValues(name).Observe(took.Seconds())
	case errors.Is(err, context.Canceled):
		m.operations.WithLabelValues(name, "canceled").Inc()
	default:
		m.operations.WithLabelValues(name, "error").Inc()
	}
}

// operationOf is the kind of step that a key is of; empty for what lasts as long as a container does.
func operationOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	if kind == "wait" || kind == "probe" {
		return ""
	}
	return kind
}

func (m *metrics) containerEnded(c containerObserved) {
	switch {
	case c.exit.Unknown:
		m.ended.WithLabelValues("unknown").Inc()
	case succeeded(c):
		m.ended.WithLabelValues("ok").Inc()
	default:
		m.ended.WithLabelValues("failed").Inc()
	}
}

func (m *metrics) leaseRenewed(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.renewals.WithLabelValues(result).Inc()
}

// collector reads what is at hand when it is asked.
type collector struct{ a *Agent }

// Collector is the node agent's metrics, for a registry. It is safe for concurrent use.
func (a *Agent) Collector() prometheus.Collector { return collector{a} }

var (
	podsDesc        = prometheus.NewDesc("bullpen_node_pods", "Pods on the node, by phase; Terminating if deleted.", []string{"phase"}, nil)
	capacityDesc    = prometheus.NewDesc("bullpen_node_capacity", "Capacity of the node, by resource.", []string{"resource"}, nil)
	allocatableDesc = prometheus.NewDesc("bullpen_node_allocatable", "Allocatable resources of the node, by resource.", []string{"resource"}, nil)
	conditionDesc   = prometheus.NewDesc("bullpen_node_condition", "1 while a condition of the node is True, 0 while it is False, -1 while it is Unknown.", []string{"condition"}, nil)
	leaseAgeDesc    = prometheus.NewDesc("bullpen_node_lease_age_seconds", "Time since the node's lease was last renewed; absent before the first renewal.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{podsDesc, capacityDesc, allocatableDesc, conditionDesc, leaseAgeDesc} {
		descriptions <- d
	}
	for _, part := range c.parts() {
		part.Describe(descriptions)
	}
}

func (c collector) parts() []prometheus.Collector {
	m := c.a.metrics
	return []prometheus.Collector{m.operations, m.durations, m.ended, m.renewals, m.freed}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(found chan<- prometheus.Metric) {
	for _, part := range c.parts() {
		part.Collect(found)
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	report := c.a.Report()
	pods := map[string]int{string(corev1.PodPending): 0, string(corev1.PodRunning): 0, string(corev1.PodSucceeded): 0, string(corev1.PodFailed): 0, phaseTerminating: 0}
	for _, p := range report.Pods {
		pods[p.Phase]++
	}
	for phase, n := range pods {
		gauge(podsDesc, float64(n), phase)
	}
	for _, r := range report.Resources {
		gauge(capacityDesc, r.capacity, r.Name)
		gauge(allocatableDesc, r.allocatable, r.Name)
	}
	for _, condition := range report.Conditions {
		value := map[string]float64{string(corev1.ConditionTrue): 1, string(corev1.ConditionFalse): 0, string(corev1.ConditionUnknown): -1}
		gauge(conditionDesc, value[condition.Status], condition.Type)
	}
	if !report.LeaseRenewed.IsZero() {
		gauge(leaseAgeDesc, report.At.Sub(report.LeaseRenewed).Seconds())
	}
}
