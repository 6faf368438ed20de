package epoch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// desk is a ledger and its copy in memory, for what a real one cannot be made to do.
type desk struct {
	mu     sync.Mutex
	row    Row
	copy   Mark
	unread error
	known  []Mark
	begun  []Decision
	beats  int
	writes []Mark

	renewals int
	turnOver bool
}

func (d *desk) Epoch(context.Context) (Row, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.row, nil
}

func (d *desk) Beat(_ context.Context, known Mark, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.row.behind(known) {
		d.beats++
		d.row.Epoch++
	}
	return nil
}

func (d *desk) EpochCopied(context.Context, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.row.Copied = true
	return nil
}

func (d *desk) BeginHold(_ context.Context, _ Mark, begun Decision, hold time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = append(d.begun, begun)
	d.row.HoldUntil, d.row.Over, d.row.Reason, d.row.LostSince = d.row.Now.Add(hold), begun.Over, begun.Reason, begun.Lost
	return nil
}

func (*desk) BeginRebuild(context.Context, time.Duration, time.Duration) (Turn, bool, error) {
	return "turn", true, nil
}

func (d *desk) RenewRebuild(context.Context, Turn, time.Duration) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewals++
	return !d.turnOver, nil
}

func (d *desk) EndRebuild(_ context.Context, _ Turn, began time.Time, doubts int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !began.IsZero() {
		d.row.RebuiltAt, d.row.Doubts = began, doubts
	}
	return nil
}

func (d *desk) EndHold(context.Context, Mark) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.row.Mark = Mark{d.row.Over.Lineage, d.row.Over.Epoch + 1000}
	d.row.HoldUntil = time.Time{}
	return true, nil
}

func (d *desk) Know(m Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = append(d.known, m)
}

func (d *desk) ReadCopy(context.Context) (Mark, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.copy, d.copy != Mark{}, d.unread
}

func (d *desk) WriteCopy(_ context.Context, m Mark) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copy = m
	d.writes = append(d.writes, m)
	return nil
}

func newKeeper(t *testing.T, d *desk, change func(*Options)) (*Keeper, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	opt := Options{
		Ledger: d, Copies: d, Rebuild: func(context.Context, Turn) (int, error) { return 0, nil }, Metrics: registry,
		Now: func() time.Time { return noon },
	}
	if change != nil {
		change(&opt)
	}
	k, err := New(opt)
	require.NoError(t, err)
	return k, registry
}

func held1(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "bullpen_ledger_frozen" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// CLAIM-17: no replica dispatches before the copy was read, once.
func TestKeeper_CLAIM17_HoldsUntilItHasLooked(t *testing.T) {
	d := &desk{row: row(7), copy: mark(7)}
	resumes := 0
	k, registry := newKeeper(t, d, func(o *Options) { o.Resumed = func() { resumes++ } })
	reason, resumed, frozen := k.Frozen()
	require.True(t, frozen)
	require.NotEmpty(t, reason)
	require.EqualValues(t, 1, held1(t, registry))
	require.NoError(t, k.look(t.Context()))
	await.Receive(t, resumed, "dispatch resumes")
	_, _, frozen = k.Frozen()
	require.False(t, frozen)
	require.EqualValues(t, 0, held1(t, registry))
	require.Equal(t, []Mark{mark(7)}, d.known)
	require.NoError(t, k.look(t.Context()))
	require.Equal(t, 1, resumes)
	require.Equal(t, 2, d.beats)
}

// The copy follows the database, and is never ahead of what was read of it.
func TestKeeper_CLAIM17_TheCopyIsNeverAhead(t *testing.T) {
	d := &desk{row: row(7)}
	d.row.Copied = false
	k, _ := newKeeper(t, d, nil)
	for range 5 {
		before := d.row.Mark
		require.NoError(t, k.look(t.Context()))
		require.Equal(t, before, d.copy)
	}
	require.True(t, d.row.Copied)
	require.Len(t, d.writes, 5)
}

// CLAIM-17: a hold from its beginning to its end, as one replica sees it.
func TestKeeper_CLAIM17_AHold(t *testing.T) {
	d := &desk{row: row(7), copy: mark(7)}
	var reasons []string
	var missed []time.Time
	missing := errors.New("the catch-up cannot be reached")
	k, registry := newKeeper(t, d, func(o *Options) {
		o.Frozen = func(reason string) { reasons = append(reasons, reason) }
		o.Missed = func(_ context.Context, since time.Time) error {
			missed = append(missed, since)
			return missing
		}
	})
	require.NoError(t, k.look(t.Context()))
	d.copy = mark(50) // another replica continued elsewhere
	require.NoError(t, k.look(t.Context()))
	require.Len(t, d.begun, 1)
	require.Equal(t, mark(50), d.begun[0].Over)
	require.EqualValues(t, 1, held1(t, registry))
	require.NoError(t, k.look(t.Context()))
	await.Return(t, k.rebuilding.Wait, "the rebuilding ends")
	d.row.Now = d.row.HoldUntil.Add(-time.Millisecond)
	require.NoError(t, k.look(t.Context()))
	await.Return(t, k.rebuilding.Wait, "the rebuilding ends")
	d.row.Now = d.row.HoldUntil
	require.ErrorIs(t, k.look(t.Context()), missing)
	require.Equal(t, mark(7).Lineage, d.row.Lineage)
	require.False(t, d.row.HoldUntil.IsZero(), "the hold continues until the lost rows are known")
	missing = nil
	require.NoError(t, k.look(t.Context()))
	require.Equal(t, d.row.BeatenAt.Add(-lostMargin), missed[0])
	require.NoError(t, k.look(t.Context()))
	_, _, frozen := k.Frozen()
	require.False(t, frozen)
	require.Len(t, reasons, 1, "it is said once")
	require.Equal(t, mark(1050), d.known[len(d.known)-1])
	require.Equal(t, mark(1050), d.writes[len(d.writes)-1])
	require.EqualValues(t, 0, held1(t, registry))
}

// An error of a rebuilding proves nothing: the hold continues.
func TestKeeper_CLAIM17_ARebuildingThatFailsEndsNothing(t *testing.T) {
	d := &desk{row: row(7), copy: mark(50)}
	k, _ := newKeeper(t, d, func(o *Options) {
		o.Rebuild = func(context.Context, Turn) (int, error) { return 0, errors.New("GitHub is away") }
	})
	require.NoError(t, k.look(t.Context()))
	for range 3 {
		d.row.Now = d.row.Now.Add(time.Hour)
		require.NoError(t, k.look(t.Context()))
		await.Return(t, k.rebuilding.Wait, "the rebuilding ends")
		_, _, frozen := k.Frozen()
		require.True(t, frozen)
	}
}

// CLAIM-17: a rebuilding that takes longer than its lease keeps its turn, and ends when it has lost it.
func TestKeeper_CLAIM17_ARebuildingKeepsItsTurnOrEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{row: row(7), copy: mark(50)}
		ended := make(chan time.Time, 1)
		k, _ := newKeeper(t, d, func(o *Options) {
			o.Rebuild = func(ctx context.Context, turn Turn) (int, error) {
				require.Equal(t, Turn("turn"), turn)
				<-ctx.Done()
				ended <- time.Now()
				return 0, ctx.Err()
			}
		})
		require.NoError(t, k.look(t.Context()))
		began := time.Now()
		require.NoError(t, k.look(t.Context()))
		<-time.After(65 * time.Second) // the lease is 30 s
		d.mu.Lock()
		renewed := d.renewals
		d.turnOver = true
		d.mu.Unlock()
		require.Equal(t, 6, renewed)
		k.rebuilding.Wait()
		require.Equal(t, 70*time.Second, await.ReceiveWithin(t, time.Hour, ended, "the rebuilding ends").Sub(began), "and not when its own time is over")
		require.True(t, d.row.RebuiltAt.IsZero())
	})
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	d := &desk{}
	rebuild := func(context.Context, Turn) (int, error) { return 0, nil }
	for _, opt := range []Options{
		{Copies: d, Rebuild: rebuild}, {Ledger: d, Rebuild: rebuild}, {Ledger: d, Copies: d},
		{Ledger: d, Copies: d, Rebuild: rebuild, Hold: -1},
	} {
		_, err := New(opt)
		require.Error(t, err)
	}
}

// hanging is a Kubernetes that takes requests and does not answer them, beside a database that minds its callers' time.
type hanging struct{ *desk }

func (hanging) ReadCopy(ctx context.Context) (Mark, bool, error) {
	<-ctx.Done()
	return Mark{}, false, ctx.Err()
}

func (h hanging) Epoch(ctx context.Context) (Row, error) {
	if ctx.Err() != nil {
		return Row{}, ctx.Err()
	}
	return h.desk.Epoch(ctx)
}

func TestKeeper_CLAIM17_AHangingKubernetesStopsNoBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{row: Row{Mark: Mark{"one", 5}, Now: noon, BeatenAt: noon, Copied: true}}
		k, _ := newKeeper(t, d, func(o *Options) { o.Ledger, o.Copies = hanging{d}, hanging{d} })
		k.known, k.started = Mark{"one", 5}, noon
		require.NoError(t, k.look(t.Context()))
		require.Equal(t, 1, d.beats)
		d.row.Mark = Mark{"one", 3}
		require.NoError(t, k.look(t.Context()))
		require.Len(t, d.begun, 1, "a restore is noticed by what the replica remembers")
	})
}

// stuck answers reads, and hangs at writes, as when an admission webhook is unavailable.
type stuck struct{ *desk }

func (stuck) WriteCopy(ctx context.Context, _ Mark) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s stuck) Beat(ctx context.Context, known Mark, every time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.desk.Beat(ctx, known, every)
}

func TestKeeper_CLAIM17_AHangingWriteStopsNoBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{row: Row{Mark: Mark{"one", 5}, Now: noon, BeatenAt: noon, Copied: true}, copy: Mark{"one", 4}}
		k, _ := newKeeper(t, d, func(o *Options) { o.Ledger, o.Copies = stuck{d}, stuck{d} })
		require.NoError(t, k.look(t.Context()))
		require.Equal(t, 1, d.beats)
	})
}
