package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
	"github.com/bullpen-ci/bullpen/test/kit/tracingtest"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func newTracer(t *testing.T, c *tracingtest.Collector, change ...func(*tracing.Options)) *tracing.Tracer {
	t.Helper()
	opt := tracing.Options{Endpoint: c.URL, Sample: 1, Service: "bullpen-server", Version: "1.2.3", Now: func() time.Time { return start.Add(time.Hour) }}
	for _, f := range change {
		f(&opt)
	}
	tracer, err := tracing.New(t.Context(), opt)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tracer.Close(context.WithoutCancel(t.Context())) })
	return tracer
}

// Two replicas that know nothing of each other, one of them after a restart, tell parts of one trace.
func TestTracer_ReplicasAddToOneTrace(t *testing.T) {
	c := tracingtest.New(t)
	first := newTracer(t, c, func(o *tracing.Options) { o.Link = "https://traces.example.com/{trace_id}" })
	first.Record(tracing.Span{JobID: 7, Name: "claim", Kind: trace.SpanKindInternal, From: start, Err: errors.New("it went wrong")})
	first.Record(tracing.Span{Name: "of no job", From: start})
	require.NoError(t, first.Close(t.Context()))
	second := newTracer(t, c)
	job := tracing.Job{
		ID: 7, Repository: "acme/app", Workflow: "ci", Name: "test", RunID: 3, Attempt: 2, Runner: "r-1", Pool: "linux", Conclusion: "failure",
		Times: fleet.JobTimes{
			Queued: start, Received: start.Add(time.Second), Claimed: start.Add(3 * time.Second), Executing: start.Add(4 * time.Second),
			Ended: start.Add(time.Minute),
		},
	}
	waited := job
	waited.Times.Ended = time.Time{}
	second.Started(waited)
	second.Ended(job)
	require.NoError(t, second.Close(t.Context()))

	require.Equal(t, 1, c.Traces())
	id, link := first.Trace(7)
	require.Equal(t, "https://traces.example.com/"+id, link)
	require.Equal(t, tracing.TraceID(7).String(), id)
	spans := map[string]tracingtest.Span{}
	for _, s := range c.Spans(id) {
		spans[s.Name] = s
	}
	require.Len(t, spans, 6)
	whole := spans["job"]
	require.Empty(t, whole.Parent)
	require.True(t, whole.Failed)
	require.Equal(t, [2]time.Time{start, start.Add(time.Minute)}, [2]time.Time{whole.From, whole.To})
	for name, value := range map[string]string{
		"cicd.pipeline.task.run.id": "7", "vcs.repository.name": "acme/app", "cicd.pipeline.name": "ci", "cicd.pipeline.run.id": "3",
		"bullpen.run.attempt": "2", "cicd.pipeline.task.name": "test", "cicd.worker.name": "r-1", "bullpen.pool": "linux",
		"cicd.pipeline.task.run.result": "failure",
	} {
		require.Equal(t, value, whole.Attributes[name], name)
	}
	require.Equal(t, "bullpen-server", whole.Resource["service.name"])
	require.Equal(t, "1.2.3", whole.Resource["service.version"])
	for name, took := range map[string]time.Duration{
		"phase webhook": time.Second, "phase dispatch": 2 * time.Second, "phase start": time.Second, "phase run": 56 * time.Second, "claim": time.Hour,
	} {
		require.Equal(t, took, spans[name].To.Sub(spans[name].From), name)
		require.Equal(t, whole.ID, spans[name].Parent, name)
	}
	require.Equal(t, start.Add(3*time.Second), spans["phase start"].From)
	require.True(t, spans["claim"].Failed)
}

// A fleet that traces one job in ten exports all of that one, from every replica, and nothing of the others.
func TestTracer_AJobIsTracedWholeOrNotAtAll(t *testing.T) {
	c := tracingtest.New(t)
	tracer := newTracer(t, c, func(o *tracing.Options) { o.Sample = 0.1 })
	shown := 0
	for id := int64(1); id <= 1000; id++ {
		if trace, _ := tracer.Trace(id); trace != "" {
			shown++
		}
		tracer.Record(tracing.Span{JobID: id, Name: "claim", From: start})
		tracer.Ended(tracing.Job{ID: id, Times: fleet.JobTimes{Queued: start, Ended: start}})
	}
	require.NoError(t, tracer.Close(t.Context()))
	require.InDelta(t, 100, shown, 60)
	require.Equal(t, shown, c.Traces())
	for id := int64(1); id <= 1000; id++ {
		if trace, _ := tracer.Trace(id); trace != "" {
			require.Len(t, c.Spans(trace), 2)
		}
	}
}

// An unavailable collector costs spans, which are counted, and one line in the log until it is back.
func TestTracer_ACollectorThatIsAway(t *testing.T) {
	c := tracingtest.New(t)
	c.Refuse.Store(true)
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	tracer := newTracer(t, c, func(o *tracing.Options) {
		o.Metrics, o.Log = metrics, slog.New(slog.NewTextHandler(&log, nil))
	})
	flush := func(id int64) {
		t.Helper()
		tracer.Record(tracing.Span{JobID: id, Name: "claim", From: start})
		require.NoError(t, tracer.Flush(t.Context()))
	}
	flush(1)
	flush(2)
	require.Equal(t, 1, strings.Count(log.String(), "the collector does not take them"))
	c.Refuse.Store(false)
	flush(3)
	flush(4)
	require.Equal(t, 1, strings.Count(log.String(), "takes traces again"))
	require.Equal(t, 2, c.Traces())
	require.NoError(t, testutil.GatherAndCompare(metrics, strings.NewReader(`
# HELP bullpen_trace_spans_total Trace spans, by outcome: recorded, sent to the collector, or rejected by it (lost). The others are queued or were dropped.
# TYPE bullpen_trace_spans_total counter
bullpen_trace_spans_total{outcome="lost"} 2
bullpen_trace_spans_total{outcome="recorded"} 4
bullpen_trace_spans_total{outcome="sent"} 2
`), "bullpen_trace_spans_total"))
}

func TestTracer_BadOptions(t *testing.T) {
	for says, opt := range map[string]tracing.Options{
		"more than 0 and at most 1":         {Sample: 0},
		"at most 1, not 1.5":                {Sample: 1.5},
		"the collector's address must be":   {Sample: 1, Endpoint: "collector:4318"},
		"must have {trace_id} in it":        {Sample: 1, Link: "https://traces.example.com/"},
		"the link to a trace must be a URL": {Sample: 1, Link: "javascript:alert('{trace_id}')"},
		"begins with http:// or https://":   {Sample: 1, Link: "ftp://traces.example.com/{trace_id}"},
	} {
		_, err := tracing.New(t.Context(), opt)
		require.ErrorContains(t, err, says)
	}
}

// Without a collector nothing is traced, and no caller has to check whether there is one.
func TestTracer_Nil(t *testing.T) {
	var tracer *tracing.Tracer
	tracer.Record(tracing.Span{JobID: 1})
	tracer.Started(tracing.Job{ID: 1})
	tracer.Ended(tracing.Job{ID: 1})
	require.Zero(t, tracer.Now())
	id, link := tracer.Trace(1)
	require.Empty(t, id+link)
	require.NoError(t, tracer.Close(t.Context()))
}

// For any data of a job, by any two clocks, no span ends before it begins, and each has one trace's root as parent.
func TestTracer_AnyTimes(t *testing.T) {
	c := tracingtest.New(t)
	tracer := newTracer(t, c)
	id := int64(0)
	rapid.Check(t, func(r *rapid.T) {
		id++
		at := func(name string) time.Time {
			if rapid.Bool().Draw(r, "no "+name) {
				return time.Time{}
			}
			return start.Add(time.Duration(rapid.IntRange(-100, 100).Draw(r, name)) * time.Second)
		}
		times := fleet.JobTimes{
			Queued: start, Received: at("received"), Approved: at("approved"), Claimed: at("claimed"), Minted: at("minted"),
			Acknowledged: at("acknowledged"), Executing: at("executing"),
		}
		tracer.Started(tracing.Job{ID: id, Times: times})
		times.Ended = start.Add(time.Duration(rapid.IntRange(-100, 100).Draw(r, "ended")) * time.Second)
		tracer.Ended(tracing.Job{ID: id, Times: times})
		require.NoError(r, tracer.Flush(t.Context()))
		trace, _ := tracer.Trace(id)
		roots := 0
		spans := c.Spans(trace)
		for _, s := range spans {
			require.False(r, s.To.Before(s.From), s.Name)
			if s.Parent == "" {
				roots++
			}
		}
		require.Equal(r, 1, roots)
		require.GreaterOrEqual(r, len(spans), len(times.Steps())-1)
	})
}
