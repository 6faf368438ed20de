package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

// traceConfig is the destination of jobs' traces. Other settings (headers, certificates, attributes) come from OpenTelemetry's own
// variables.
type traceConfig struct {
	endpoint, link string
	sample         float64
}

func (c *traceConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.endpoint, "trace-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP) for traces of jobs, such as http://collector:4318 "+
		"(default: $OTEL_EXPORTER_OTLP_ENDPOINT, or no traces)")
	f.Float64Var(&c.sample, "trace-sample", 1, "fraction of jobs to trace, more than 0 and at most 1; the same on every server")
	f.StringVar(&c.link, "trace-link", "", "URL of the page of a trace, with {trace_id} in it; linked from the job's page")
}

// wanted reports whether a collector is configured.
func (c *traceConfig) wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return c.endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// traceFlush is how long the end of a server waits for a collector to take what is left.
const traceFlush = 5 * time.Second

// newTracer returns nil without a collector: a nil tracer traces nothing.
func newTracer(ctx context.Context, cfg serverConfig, r *replica) (*tracing.Tracer, error) {
	if !cfg.traces.wanted() {
		return nil, nil //nolint:nilnil // a nil Tracer is one that does nothing
	}
	tracer, err := tracing.New(ctx, tracing.Options{
		Endpoint: cfg.traces.endpoint, Sample: cfg.traces.sample, Link: cfg.traces.link, Service: "bullpen-server", Version: version,
		Log: r.log, Metrics: r.registry, Now: r.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			r.log.WarnContext(ctx, "sending the last traces", "error", err)
		}
	})
	return tracer, nil
}
