package controller_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// writeCounter counts the requests that change something, by verb and resource. Events and Leases do not count (P5).
type writeCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *writeCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		at := slices.Index(parts, "namespaces")
		if r.Method != http.MethodGet && at >= 0 && len(parts) > at+2 {
			resource := parts[at+2]
			if len(parts) > at+4 {
				resource += "/" + parts[at+4]
			}
			if resource != "events" && resource != "leases" {
				c.mu.Lock()
				c.counts[r.Method+" "+resource]++
				c.mu.Unlock()
			}
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *writeCounter) take() (total int, table string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, n := range c.counts {
		total += n
		table += fmt.Sprintf("\n  %-28s %d", what, n)
	}
	c.counts = map[string]int{}
	return total, table
}

// P5: of the six writes that a job may cost, the controller has five: pod and ServiceAccount come and go, and what is
// left pays for the pool's status. The server's label is the sixth.
func TestPool_P5_AJobCostsAtMostFiveWrites(t *testing.T) {
	b := newBench(t)
	b.stop()
	writes := &writeCounter{counts: map[string]int{}}
	options := b.options()
	options.Config.Wrap(writes.wrap)
	b.stop = b.run(options)
	const size, jobs = 10, 40
	began := time.Now()
	b.pool("cost", size)
	b.havePods("cost", size)
	t.Logf("%d runners up in %s", size, time.Since(began).Round(time.Millisecond))
	b.makeIdle(b.podNames("cost")...)
	b.eventually("idle", func() bool { return b.get("cost").Status.Idle == size })
	writes.take()

	done := map[string]bool{}
	for len(done) < jobs {
		for _, pod := range b.havePods("cost", size) {
			if done[pod.Name] || len(done) == jobs {
				continue
			}
			done[pod.Name] = true
			b.makeIdle(pod.Name)
			b.makeBusy(pod.Name)
			b.finish(pod.Name)
		}
	}
	b.eventually("all reaped", func() bool {
		for _, pod := range b.pods("cost") {
			if pod.Status.Phase == corev1.PodSucceeded {
				return false
			}
		}
		return slices.Equal(b.podNames("cost"), b.accountNames("cost")) && len(b.podNames("cost")) == size
	})
	total, table := writes.take()
	t.Logf("%.2f writes per job:%s", float64(total)/jobs, table)
	require.LessOrEqual(t, total, 5*jobs)
}
