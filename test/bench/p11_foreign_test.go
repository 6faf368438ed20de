package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

const (
	p11Accounts = 21 // each has fewer lanes than one account may have, or its jobs would be held (TEN-2)
	p11Jobs     = 60
	p11Reads    = 15
	p11Budget   = 1.3
)

var p11Sets = []int{10_000, 200_000}

var stranger = dispatch.Account{ID: 2, Login: "stranger", InstallationID: 43}

// foreignLedger is a server whose ledger holds queued jobs of many label sets that no pool serves, an equal part of them the account's own.
type foreignLedger struct {
	*rig
	next                int64
	claims, ends, reads []time.Duration
	acme                dispatch.Account
	served              chan jit
	agents              context.Context //nolint:containedctx // the life of the pods that poll
}

func newForeignLedger(b *testing.B, sets int) *foreignLedger {
	b.Helper()
	f := &foreignLedger{rig: newRig(b, dispatchtest.InstantGitHub{}), next: 1000, acme: dispatch.Account{ID: 1, Login: "acme", InstallationID: 42}, served: make(chan jit, 1), agents: b.Context()}
	require.Less(b, sets/p11Accounts+p11Jobs, dispatch.MaxLabelSets)
	f.install(f.acme, stranger)
	for id := stranger.ID + 1; id <= p11Accounts; id++ {
		f.install(dispatch.Account{ID: id, Login: fmt.Sprintf("other-%d", id), InstallationID: 100 + id})
	}
	for _, sql := range []string{
		`INSERT INTO label_sets SELECT '["run-' || n || '"]', ARRAY['run-' || n] FROM generate_series(1, $1::int) n WHERE $2::int > 0`,
		`INSERT INTO job_lanes (label_key, account_id, head_at) SELECT '["run-' || n || '"]', 1 + n % $2::int, now() FROM generate_series(1, $1::int) n`,
		`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
			SELECT 10000000 + n, 1 + n % $2::int, 'acme/app', n, 1, 'b', 'ci', 'main', 'a', '["run-' || n || '"]', 'queued', now(), now() FROM generate_series(1, $1::int) n`,
	} {
		ledgertest.Exec(b, f.url, sql, sets, p11Accounts)
	}
	ledgertest.Exec(b, f.url, `VACUUM ANALYZE`)
	return f
}

// job has one job queued, claimed and ended; a new foreign label set comes with it.
func (f *foreignLedger) job(b *testing.B, foreign bool) {
	b.Helper()
	f.next++
	pod := f.newPod()
	go f.agent(f.agents, pod, f.served)
	require.Eventually(b, func() bool { return f.dispatcher.WaitingPolls() == 1 }, time.Minute, time.Millisecond)
	if foreign {
		ev := dispatch.JobEvent{Kind: "queued", Account: stranger, JobID: 50_000_000 + f.next, Repository: "stranger/app",
			Labels: []string{fmt.Sprintf("new-%d", f.next)}}
		_, err := f.store.RecordJob(context.Background(), dispatch.Delivery{Event: "workflow_job", At: time.Now()}, ev)
		require.NoError(b, err)
	}
	start := time.Now()
	f.hook("queued", f.next, f.acme, "")
	got := await.ReceiveWithin(b, time.Minute, f.served, "the poll is served")
	f.claims = append(f.claims, got.at.Sub(start))
	start = time.Now()
	f.hook("completed", f.next, f.acme, got.RunnerName)
	f.ends = append(f.ends, time.Since(start))
}

// read reads the signals again.
func (f *foreignLedger) read(b *testing.B) {
	b.Helper()
	<-time.After(1100 * time.Millisecond) // answers are kept for a second
	f.dispatcher.PoolsChanged()           // of a pool's status
	start := time.Now()
	_, err := f.dispatcher.Signals(context.Background())
	require.NoError(b, err)
	f.reads = append(f.reads, time.Since(start))
}

// BenchmarkP11 compares the cost of a job's event and of a reading of the signals among 10,000 and 200,000 label sets that no pool serves with
// their cost among none, alternating.
func BenchmarkP11(b *testing.B) {
	for b.Loop() {
		none := newForeignLedger(b, 0)
		all := []*foreignLedger{none}
		for _, sets := range p11Sets {
			all = append(all, newForeignLedger(b, sets))
		}
		for i := range p11Jobs {
			for _, f := range all {
				f.job(b, i%2 == 0)
			}
		}
		for range p11Reads {
			for _, f := range all {
				f.read(b)
			}
		}
		for i, many := range all[1:] {
			p11Report(b, none, many, fmt.Sprintf("%d,000 label sets", p11Sets[i]/1000))
		}
	}
}

func p11Report(b *testing.B, none, many *foreignLedger, among string) {
	b.Helper()
	for _, c := range []struct {
		what     string
		one, all []time.Duration
	}{
		{"webhook → JIT", none.claims[10:], many.claims[10:]}, {"the end of a job", none.ends[10:], many.ends[10:]}, {"a reading of the signals", none.reads, many.reads},
	} {
		base, took := stats.Quantile(c.one, .5), stats.Quantile(c.all, .5)
		ratio := float64(took) / float64(base)
		b.ReportMetric(ratio, "ratio")
		report(row{
			id: "P11", what: c.what + " among " + among + " that no pool serves, p50", measured: ms(took), limit: "among none: " + ms(base),
			result: fmt.Sprintf("%.2f×", ratio), value: ratio, samples: len(c.all), spread: quartiles(c.all), budget: "≤ 1.3×", kept: ratio <= p11Budget,
		})
	}
}
