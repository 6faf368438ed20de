package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

const (
	p4Pods    = 2000
	p4Rounds  = 5 // the one in the middle counts
	p4Clients = 16
)

// BenchmarkP4 measures how long a pool takes from nothing to 2,000 pods (p4Pods), each with its ServiceAccount, against 16 parallel clients
// that create the same objects and do nothing else; once more with a GitHub that takes 100 ms, and the built-in ReplicaSet controller,
// which creates pods only, beside them. Each round measures all, one after another, in another order each time, and nothing is deleted in
// between. The server is a stand-in; the controller, its role and the control plane are real.
func BenchmarkP4(b *testing.B) {
	env := startPlane(b)
	raw, pool, slow, builtin := newSide(b, env), newSide(b, env), newSide(b, env), newSide(b, env)
	pool.runController(b, 0)
	slow.runController(b, slowServer)
	subjects := []struct {
		name string
		fill func(n int) time.Duration
	}{{"raw", raw.createRaw}, {"pool", pool.fillPool}, {"slow", slow.fillPool}, {"builtin", builtin.fillReplicaSet}}
	took := map[string][]time.Duration{}
	measure := func(round, n int) {
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			took[s.name] = append(took[s.name], s.fill(n))
			b.Logf("%s, %d pods: %s", s.name, n, seconds(took[s.name][len(took[s.name])-1]))
		}
	}
	for b.Loop() {
		measure(0, 100) // fills caches and opens connections
		clear(took)
		for round := range p4Rounds {
			measure(round, p4Pods)
		}
		ratio, low, high := ratios(took["pool"], took["raw"])
		limit := fmt.Sprintf("16 raw clients: %s (ReplicaSet, pods only: %s)", seconds(stats.Median(took["raw"])), seconds(stats.Median(took["builtin"])))
		b.ReportMetric(ratio, "ratio")
		report(row{
			id: "P4", what: fmt.Sprintf("0 → %d pods with their ServiceAccounts", p4Pods), measured: seconds(stats.Median(took["pool"])), limit: limit,
			result: fmt.Sprintf("%.2f×", ratio), value: ratio, samples: p4Rounds, spread: fmt.Sprintf("%.2f–%.2f×", low, high), budget: "≤ 1.5×", kept: ratio <= 1.5,
		})
		extra, low, high := ratios(took["slow"], took["pool"])
		report(row{
			id: "P4", what: "the same, GitHub answers in 100 ms", measured: seconds(stats.Median(took["slow"])), limit: "the row above",
			result: fmt.Sprintf("%.2f×", extra), value: extra, samples: p4Rounds, spread: fmt.Sprintf("%.2f–%.2f×", low, high), budget: "≤ 1.1×", kept: extra <= 1.1,
		})
	}
}

// createRaw creates what a pool of n would, as fast as 16 clients can.
func (s *side) createRaw(n int) time.Duration {
	s.tb.Helper()
	owner := s.newPool() // it is not reconciled
	start := time.Now()
	s.createAll(owner, n)
	return lastOf(s.await(n, added)).Sub(start)
}

// fillPool scales an empty pool to n.
func (s *side) fillPool(n int) time.Duration {
	s.tb.Helper()
	pool := s.newPool()
	s.settled(pool)
	start := time.Now()
	s.scale(pool, n)
	return lastOf(s.await(n, added)).Sub(start)
}

// fillReplicaSet has the built-in controller create n of the same pods; they share the default ServiceAccount.
func (s *side) fillReplicaSet(n int) time.Duration {
	s.tb.Helper()
	start := time.Now()
	s.newReplicaSet(n)
	return lastOf(s.await(n, added)).Sub(start)
}
