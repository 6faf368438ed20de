package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

const (
	p15Senders = 200
	p15Body    = 25 << 20
	p15Budget  = 64 << 20
)

// BenchmarkP15 has 200 strangers send the server 25 MiB each at once, without a signature and with a wrong one, and
// measures the maximum that its process holds then, garbage included, beside what it held before. The senders are in the
// same process, and share what they send.
func BenchmarkP15(b *testing.B) {
	for b.Loop() {
		r := newRig(b, dispatchtest.InstantGitHub{})
		for _, c := range []struct{ what, signature string }{
			{"no signature", ""}, {"a wrong one", github.HeaderSignature + ": " + github.Sign("guess", nil) + "\r\n"},
		} {
			more, answers := p15Peak(b, r, c.signature)
			b.ReportMetric(more/(1<<20), "MiB")
			report(row{
				id: "P15", what: "the server's memory, 200 bodies of 25 MiB with " + c.what, measured: "+" + mib(more), limit: "the same without them; answered " + answers,
				result: "+" + mib(more), value: more, samples: 1, budget: "≤ +" + mib(p15Budget), kept: more <= p15Budget,
			})
		}
	}
}

// p15Peak returns the most bytes that the process had more than before, and how often which status was the answer.
func p15Peak(b *testing.B, r *rig, signature string) (float64, string) {
	b.Helper()
	piece := make([]byte, 1<<20)
	before := float64(inUse())
	var mu sync.Mutex
	statuses := map[int]int{}
	var senders sync.WaitGroup
	for range p15Senders {
		senders.Go(func() {
			status := p15Send(r.public.Listener.Addr().String(), signature, piece)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	done := make(chan struct{})
	go func() { senders.Wait(); close(done) }()
	peak := 0.0
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			require.NotContains(b, statuses, http.StatusOK)
			return max(0, peak-before), strings.TrimPrefix(fmt.Sprint(statuses), "map")
		case <-look.C:
			peak = max(peak, heapAndStacks())
		}
	}
}

// heapAndStacks is what inUse is, garbage included: reading it does not stop the program.
func heapAndStacks() float64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return float64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}

// p15Send sends a body until it is answered, and returns the status; 0 when the connection broke without one.
func p15Send(address, signature string, piece []byte) int {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	_, _ = fmt.Fprintf(conn, "POST /webhooks/github HTTP/1.1\r\nHost: bullpen\r\n%s: workflow_job\r\n%s: one-guid\r\n%sContent-Length: %d\r\n\r\n",
		github.HeaderEvent, github.HeaderDelivery, signature, p15Body)
	go func() { // ends with the connection
		for sent := 0; sent < p15Body; sent += len(piece) {
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}
