package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// linkID is replaced by a trace's id in a link.
const linkID = "{trace_id}"

// queue is how many spans may wait to be sent: some ten for each job.
const queue = 8192

// Options of New.
type Options struct {
	// Endpoint is the collector's URL, such as http://collector:4318, to which /v1/traces is added. When empty, the
	// exporter uses OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT and others), as it does for headers and
	// certificates in any case.
	Endpoint string
	// Sample is the share of jobs that are traced, each of them whole, in (0, 1].
	Sample float64
	// Link is the URL of a trace's page, with {trace_id} in it; none when empty.
	Link string
	// Service and Version are the resource attributes of the spans.
	Service, Version string
	Log              *slog.Logger
	Metrics          prometheus.Registerer // takes bullpen_trace_spans_total
	Now              func() time.Time
	// Exporter is where spans go instead, in tests.
	Exporter sdktrace.SpanExporter
}

// Tracer records spans. A nil one records nothing. It is safe for concurrent use, and nothing waits for a collector: spans that it does
// not take in time are dropped.
type Tracer struct {
	opt      Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	recorded prometheus.Counter
	sampler  sdktrace.Sampler
}

// New connects to nothing yet: an unavailable collector blocks nothing. Close sends what is left.
func New(ctx context.Context, opt Options) (*Tracer, error) {
	if err := check(opt); err != nil {
		return nil, err
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	exporter := opt.Exporter
	if exporter == nil {
		var to []otlptracehttp.Option
		if opt.Endpoint != "" {
			to = append(to, otlptracehttp.WithEndpointURL(strings.TrimSuffix(opt.Endpoint, "/")+"/v1/traces"))
		}
		otlp, err := otlptracehttp.New(ctx, to...)
		if err != nil {
			return nil, fmt.Errorf("preparing to send traces: %w", err)
		}
		exporter = otlp
	}
	counted, err := newCounted(exporter, opt.Log, opt.Metrics)
	if err != nil {
		return nil, err
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, and take precedence.
	from, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", opt.Service), attribute.String("service.version", opt.Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("saying where traces come from (OTEL_RESOURCE_ATTRIBUTES): %w", err)
	}
	t := &Tracer{opt: opt, sampler: sdktrace.TraceIDRatioBased(opt.Sample), recorded: counted.spans.WithLabelValues("recorded")}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(counted, sdktrace.WithMaxQueueSize(queue)), sdktrace.WithIDGenerator(ids{}), sdktrace.WithSampler(t.sampler), sdktrace.WithResource(from))
	t.tracer = t.provider.Tracer("github.com/bullpen-ci/bullpen")
	return t, nil
}

func check(opt Options) error {
	if !(opt.Sample > 0 && opt.Sample <= 1) {
		return fmt.Errorf("the share of jobs to trace must be more than 0 and at most 1, not %v", opt.Sample)
	}
	for name, text := range map[string]string{"the collector's address": opt.Endpoint, "the link to a trace": strings.ReplaceAll(opt.Link, linkID, "0")} {
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("%s must be a URL that begins with http:// or https://", name)
		}
	}
	if opt.Link != "" && !strings.Contains(opt.Link, linkID) {
		return errors.New("the link to a trace must have " + linkID + " in it")
	}
	return nil
}

// Close sends what is left, for as long as ctx lasts.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Flush sends what has been recorded until now.
func (t *Tracer) Flush(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.ForceFlush(ctx)
}

// Trace returns the id of a job's trace and its link, each empty when there is none.
func (t *Tracer) Trace(jobID int64) (id, link string) {
	if t == nil || !t.sampled(jobID) {
		return "", ""
	}
	id = TraceID(jobID).String()
	return id, strings.ReplaceAll(t.opt.Link, linkID, id)
}

func (t *Tracer) sampled(jobID int64) bool {
	return t.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: TraceID(jobID)}).Decision == sdktrace.RecordAndSample
}

// Span is a part of a job's trace that is over.
type Span struct {
	JobID      int64
	Name       string
	Kind       trace.SpanKind
	From       time.Time
	To         time.Time // now, when zero
	Err        error
	Attributes []attribute.KeyValue
}

// Now is the time by which spans are measured; zero for a nil Tracer, which measures none.
func (t *Tracer) Now() time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.opt.Now()
}

// Record adds a span to a job's trace. One of no job (id 0) is left out.
func (t *Tracer) Record(s Span) {
	if t == nil || s.JobID == 0 {
		return
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: TraceID(s.JobID), SpanID: rootID(s.JobID), TraceFlags: trace.FlagsSampled, Remote: true,
	})
	t.record(trace.ContextWithRemoteSpanContext(context.Background(), parent), s)
}

func (t *Tracer) record(ctx context.Context, s Span) {
	if s.To.IsZero() {
		s.To = t.opt.Now()
	}
	if s.To.Before(s.From) { // two clocks
		s.To = s.From
	}
	_, span := t.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.From), trace.WithSpanKind(s.Kind),
		trace.WithAttributes(attribute.Int64("cicd.pipeline.task.run.id", s.JobID)), trace.WithAttributes(s.Attributes...))
	if s.Err != nil {
		span.SetStatus(codes.Error, s.Err.Error())
	}
	if span.IsRecording() {
		t.recorded.Inc()
	}
	span.End(trace.WithTimestamp(s.To))
}

// Job is what is known of a job whose runner is one of ours. Names of attributes are those of OpenTelemetry's conventions for CI/CD where
// it has one.
type Job struct {
	ID                         int64
	Repository, Workflow, Name string
	RunID, Attempt             int64
	Runner, Pool, Conclusion   string
	Times                      fleet.JobTimes
}

func (j Job) attributes() []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("vcs.repository.name", j.Repository), attribute.String("cicd.pipeline.name", j.Workflow),
		attribute.Int64("cicd.pipeline.run.id", j.RunID), attribute.Int64("bullpen.run.attempt", j.Attempt),
		attribute.String("cicd.pipeline.task.name", j.Name), attribute.String("cicd.worker.name", j.Runner),
		attribute.String("bullpen.pool", j.Pool),
	}
	if j.Conclusion != "" {
		all = append(all, attribute.String("cicd.pipeline.task.run.result", j.Conclusion))
	}
	return all
}

// Started tells what a job that one of our runners has begun had waited for.
func (t *Tracer) Started(j Job) {
	if t == nil {
		return
	}
	at := time.Time{}
	for _, step := range j.Times.Steps()[:1] {
		at = step.At
	}
	for _, spent := range j.Times.Split() {
		t.Record(Span{
			JobID: j.ID, Name: "phase " + string(spent.Phase), From: at, To: at.Add(spent.Time),
			Attributes: append(j.attributes(), attribute.String("bullpen.phase", spent.Phase.Words())),
		})
		at = at.Add(spent.Time)
	}
}

// Ended exports a whole job: the span that the others are parts of, and its run if it had one.
func (t *Tracer) Ended(j Job) {
	if t == nil {
		return
	}
	if !j.Times.Executing.IsZero() {
		t.Record(Span{
			JobID: j.ID, Name: "phase " + string(fleet.PhaseRun), From: j.Times.Executing, To: j.Times.Ended,
			Attributes: append(j.attributes(), attribute.String("bullpen.phase", fleet.PhaseRun.Words())),
		})
	}
	whole := Span{JobID: j.ID, Name: "job", Kind: trace.SpanKindServer, From: j.Times.Queued, To: j.Times.Ended, Attributes: j.attributes()}
	if j.Conclusion == "failure" {
		whole.Err = errFailed
	}
	t.record(context.WithValue(context.Background(), rootKey{}, j.ID), whole)
}

var errFailed = errors.New("the job failed")
