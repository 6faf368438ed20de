package retention

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fakeStore has that many rows of each kind left.
type fakeStore struct {
	rows  map[Kind]int64
	most  []int32
	fails Kind
	hangs Kind
}

func (f *fakeStore) Prune(ctx context.Context, rule Rule, most int32) (int64, error) {
	f.most = append(f.most, most)
	if rule.Kind == f.hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if rule.Kind == f.fails {
		return 0, errors.New("no luck")
	}
	n := min(f.rows[rule.Kind], int64(most))
	f.rows[rule.Kind] -= n
	return n, nil
}

func value(t *testing.T, c *prometheus.CounterVec, kind Kind) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, c.WithLabelValues(string(kind)).Write(&m))
	return m.GetCounter().GetValue()
}

// RECV-6: a pass removes no more of a kind than its cap, in batches, and says that it stopped there.
func TestRun_RECV6_CapsWhatItRemovesAndSaysSo(t *testing.T) {
	store := &fakeStore{rows: map[Kind]int64{Jobs: 1000, Deliveries: 24}}
	r, err := New(Options{Store: store, Batch: 10, Cap: 25})
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context()))
	require.Equal(t, int64(975), store.rows[Jobs])
	require.Zero(t, store.rows[Deliveries])
	require.InDelta(t, 25, value(t, r.removed, Jobs), 0)
	require.InDelta(t, 1, value(t, r.capped, Jobs), 0)
	require.Zero(t, value(t, r.capped, Deliveries))
	for _, most := range store.most {
		require.LessOrEqual(t, most, int32(10))
	}
}

// A kind that never ends uses up its own part of the time, and no other's.
func TestRun_ASlowKindKeepsNoOtherFromGoing(t *testing.T) {
	store := &fakeStore{rows: map[Kind]int64{Deliveries: 5, Audit: 5, LabelSets: 5}, hangs: Deliveries}
	r, err := New(Options{Store: store})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, r.Run(ctx), context.DeadlineExceeded)
	require.NoError(t, ctx.Err(), "the pass itself has time left")
	require.Zero(t, store.rows[Audit])
	require.Zero(t, store.rows[LabelSets])
}

func TestRun_AKindThatFailsKeepsNoOtherFromGoing(t *testing.T) {
	store := &fakeStore{rows: map[Kind]int64{LabelSets: 5}, fails: Deliveries}
	r, err := New(Options{Store: store})
	require.NoError(t, err)
	require.ErrorContains(t, r.Run(t.Context()), "removing deliveries")
	require.Zero(t, store.rows[LabelSets])
}

// CLAIM-4: under every policy that is accepted a tombstone outlives its job's row, and any message about it that GitHub
// may still deliver; and a delivery is remembered for longer than GitHub delivers again.
func TestPolicy_CLAIM4_TombstonesOutliveTheirJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.Map(rapid.Int64Range(-10, 3000), func(h int64) time.Duration { return time.Duration(h) * time.Hour })
		p := Policy{Deliveries: duration.Draw(t, "deliveries"), Jobs: duration.Draw(t, "jobs"),
			Tombstones: duration.Draw(t, "tombstones"), Sessions: duration.Draw(t, "sessions"), Repositories: duration.Draw(t, "repositories"),
			Installations: duration.Draw(t, "installations"), Audit: duration.Draw(t, "audit")}
		if p.Check() != nil {
			return
		}
		before := map[Kind]time.Time{}
		now := time.Unix(2_000_000_000, 0)
		for _, rule := range p.Rules(now) {
			before[rule.Kind] = rule.Before
			require.False(t, rule.Before.After(now), "%s that end in the future", rule.Kind)
		}
		require.False(t, before[Tombstones].After(before[Jobs]))
		require.False(t, before[Tombstones].After(before[Deliveries]))
		require.True(t, before[Deliveries].Before(now.Add(-72*time.Hour)))
		require.False(t, before[Installations].After(before[Deliveries]), "nothing that comes late brings one back")
		require.True(t, before[Repositories].Before(now.Add(-14*24*time.Hour)), "they are swept")
	})
}

func TestPolicy_SaysWhatIsWrong(t *testing.T) {
	require.NoError(t, Default().Check())
	for want, change := range map[string]func(*Policy){
		"GitHub may deliver again":    func(p *Policy) { p.Deliveries = 72 * time.Hour },
		"ended jobs":                  func(p *Policy) { p.Jobs = time.Hour },
		"late messages":               func(p *Policy) { p.Tombstones = p.Jobs - 1 },
		"as long as jobs (2000h0m0s)": func(p *Policy) { p.Jobs, p.Tombstones, p.Sessions = 2000*time.Hour, 2001*time.Hour, 1999*time.Hour },
		"swept for 14 days":           func(p *Policy) { p.Repositories = 14 * day },
		"bringing an installation":    func(p *Policy) { p.Installations = p.Deliveries - 1 },
		"the audit log":               func(p *Policy) { p.Audit = day },
	} {
		p := Default()
		change(&p)
		require.ErrorContains(t, p.Check(), want)
		_, err := New(Options{Store: &fakeStore{}, Policy: p})
		require.ErrorContains(t, err, want)
	}
}
