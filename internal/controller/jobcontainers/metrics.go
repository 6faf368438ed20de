package jobcontainers

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Outcomes of requests.
const (
	outcomeGranted  = "granted"
	outcomeRefused  = "refused"
	outcomeRepeated = "repeated"
)

// Reasons of Events, about a pod.
const (
	reasonAdded   = "JobContainerAdded"
	reasonRefused = "JobContainersRefused"
	reasonFailed  = "JobContainerFailed"
)

type metrics struct {
	requests   *prometheus.CounterVec
	containers *prometheus.CounterVec
	failures   prometheus.Counter
	seconds    prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	const namespace, subsystem = "bullpen", "jobcontainers"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total", Help: "Requests of jobs for containers, by outcome.",
		}, []string{"outcome"}),
		containers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "added_total", Help: "Containers that were added to runner pods, by role.",
		}, []string{"role"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "failures_total", Help: "Reports to jobs that a container did not start, or was killed.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "request_duration_seconds",
			Help:    "Time from the exit of the container that carried a request until the containers were added.",
			Buckets: []float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64},
		}),
	}
	for _, outcome := range []string{outcomeGranted, outcomeRefused, outcomeRepeated} {
		m.requests.WithLabelValues(outcome)
	}
	return m, errors.Join(registry.Register(m.requests), registry.Register(m.containers), registry.Register(m.failures), registry.Register(m.seconds))
}

// event reports about a pod. Its text has images and sentences of this package, and never what a request has beside them (JOB-3).
func (r *Reconciler) event(pod *corev1.Pod, kind, reason, note string, args ...any) {
	r.events.Eventf(pod, nil, kind, reason, "AddContainers", note, args...)
}
