package tracingtest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one as it arrived.
type Span struct {
	ID, Parent string // hexadecimal; no parent: empty
	Name       string
	From, To   time.Time
	Failed     bool
	Attributes map[string]string // of the span; numbers as text
	Resource   map[string]string // of who sent it
	Headers    http.Header       // of the request that it came in
}

// Collector takes OTLP over HTTP at URL. It is safe for concurrent use.
type Collector struct {
	URL string
	// Refuse has it answer 400, for as long as it is true.
	Refuse atomic.Bool

	mu    sync.Mutex
	spans map[string][]Span // by trace
}

// New starts one that ends with the test.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{spans: map[string][]Span{}}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Spans are those of a trace, by its id in hexadecimal, in the order in which they came.
func (c *Collector) Spans(trace string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span{}, c.spans[trace]...)
}

// Traces counts the traces with at least one span.
func (c *Collector) Traces() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans)
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	read, err := io.ReadAll(body)
	var sent collectorpb.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(read, &sent)
	}
	if err != nil || c.Refuse.Load() || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" {
		http.Error(w, "refused", http.StatusBadRequest)
		return
	}
	c.keep(&sent, r.Header.Clone())
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) keep(sent *collectorpb.ExportTraceServiceRequest, headers http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range sent.GetResourceSpans() {
		resource := map[string]string{}
		for _, a := range from.GetResource().GetAttributes() {
			resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				trace := hex.EncodeToString(s.GetTraceId())
				span := spanOf(s)
				span.Resource, span.Headers = resource, headers
				c.spans[trace] = append(c.spans[trace], span)
			}
		}
	}
}

func spanOf(s *tracepb.Span) Span {
	span := Span{
		ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()), Name: s.GetName(),
		From:   time.Unix(0, int64(s.GetStartTimeUnixNano())).UTC(), //nolint:gosec // years from now
		To:     time.Unix(0, int64(s.GetEndTimeUnixNano())).UTC(),   //nolint:gosec // years from now
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Attributes: map[string]string{},
	}
	for _, a := range s.GetAttributes() {
		value := a.GetValue().GetStringValue()
		if value == "" {
			value = strconv.FormatInt(a.GetValue().GetIntValue(), 10)
		}
		span.Attributes[a.GetKey()] = value
	}
	return span
}
