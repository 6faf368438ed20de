package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// counted counts what was sent and what was lost, and logs an unavailable collector once, not for every batch.
type counted struct {
	sdktrace.SpanExporter
	log   *slog.Logger
	spans *prometheus.CounterVec
	away  atomic.Bool
}

func newCounted(to sdktrace.SpanExporter, log *slog.Logger, reg prometheus.Registerer) (*counted, error) {
	c := &counted{SpanExporter: to, log: log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_trace_spans_total", Help: "Trace spans, by outcome: recorded, sent to the collector, or rejected by it (lost). The others are queued or were dropped.",
	}, []string{"outcome"})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.spans.WithLabelValues("recorded")
	c.spans.WithLabelValues("sent")
	c.spans.WithLabelValues("lost")
	if reg != nil {
		if err := reg.Register(c.spans); err != nil {
			return nil, fmt.Errorf("registering the tracing metrics: %w", err)
		}
	}
	return c, nil
}

// ExportSpans returns no error: it has been logged here, and the caller would only log it again, each time.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.spans.WithLabelValues("lost").Add(float64(len(spans)))
		if !c.away.Swap(true) {
			c.log.WarnContext(ctx, "traces are lost: the collector does not take them", "error", err)
		}
		return nil
	}
	c.spans.WithLabelValues("sent").Add(float64(len(spans)))
	if c.away.Swap(false) {
		c.log.InfoContext(ctx, "the collector takes traces again")
	}
	return nil
}
