package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// p3Picks is how many jobs are picked of each ledger: the one account that has room has 100.
const p3Picks = 90

// ledger is a filled one that jobs are picked from.
type ledger struct {
	store *postgres.Store
	url   string
	took  []time.Duration
}

// putBack has what was picked queued again.
func (l *ledger) putBack(b *testing.B) {
	b.Helper()
	for _, sql := range []string{
		"UPDATE workflow_jobs SET state = 'queued' WHERE state = 'claimed'", "DELETE FROM runner_registrations WHERE state = 'intended'",
		"DELETE FROM runner_claims WHERE state = 'claimed'", "UPDATE job_lanes SET running = 0 WHERE running <> 0", "VACUUM workflow_jobs, runner_claims, runner_registrations",
	} {
		ledgertest.Exec(b, l.url, sql)
	}
}

func newLedger(b *testing.B, size ledgertest.Size) *ledger {
	b.Helper()
	store, url := openStore(b)
	ledgertest.Fill(b, url, size)
	return &ledger{store: store, url: url}
}

// pick has one pod claim one job: the whole transaction, as a poll has it without others.
func (l *ledger) pick(b *testing.B) {
	b.Helper()
	uid := uuid.NewString()
	start := time.Now()
	result, err := l.store.ClaimBatch(context.Background(), dispatch.Batch{
		Pool: dispatch.Pool{
			Namespace: "runners", Name: "linux", Labels: []string{ledgertest.Labels}, Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 4000, MemoryMB: 16384}, RunnerGroupID: 1,
		},
		LabelKeys: []string{ledgertest.LabelKey}, Polls: []dispatch.Poll{{Namespace: "runners", PodName: uid, PodUID: uid}},
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {}, Lease: time.Minute, Now: time.Now(), Excluded: []int64{},
	})
	l.took = append(l.took, time.Since(start))
	require.NoError(b, err)
	require.Len(b, result.Claims, 1)
}

// BenchmarkP3 measures what it costs to pick a job when 1,000,000 are queued, of 10,000 accounts of which all but one are
// at their limit. It is compared with 1,000 queued jobs of 10 accounts. They take turns.
func BenchmarkP3(b *testing.B) {
	large := newLedger(b, ledgertest.Size{Queued: 1_000_000, Accounts: 10_000, Free: 1})
	small := newLedger(b, ledgertest.Size{Queued: 1_000, Accounts: 10, Free: 1})
	for range 10 { // the first ones fill caches
		large.pick(b)
		small.pick(b)
	}
	large.took, small.took = nil, nil
	for b.Loop() {
		for range p3Picks {
			large.pick(b)
			small.pick(b)
		}
		b.StopTimer()
		large.putBack(b)
		small.putBack(b)
		b.StartTimer()
		ratio := float64(stats.Median(large.took)) / float64(stats.Median(small.took))
		b.ReportMetric(ratio, "ratio")
		report(row{
			id: "P3", what: "choosing a job among 1,000,000 queued jobs, 9,999 of 10,000 accounts at their limit", measured: ms(stats.Median(large.took)),
			limit: "among 1,000 queued: " + ms(stats.Median(small.took)), result: fmt.Sprintf("%.2f×", ratio), value: ratio,
			samples: len(large.took), spread: quartiles(large.took), budget: "≤ 1.3×", kept: ratio <= 1.3,
		})
	}
}
