package clock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/clock"
)

// noon is the database's time when a test begins.
var noon = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// bench is a database and a machine whose clocks a test moves.
type bench struct {
	database time.Time
	wall     time.Time
	passed   time.Duration
	answer   time.Duration // how long an answer takes after it was written
	err      error
	log      strings.Builder
	metrics  *prometheus.Registry
}

func newBench(t *testing.T, ahead time.Duration) (*bench, *clock.Clock) {
	t.Helper()
	b := &bench{database: noon, wall: noon.Add(ahead), metrics: prometheus.NewRegistry()}
	c, err := clock.New(t.Context(), clock.Options{
		Read: func(context.Context) (time.Time, error) {
			said := b.database
			b.pass(b.answer)
			return said, b.err
		},
		Wall: func() time.Time { return b.wall }, Passed: func() time.Duration { return b.passed },
		Log: slog.New(slog.NewTextHandler(&b.log, nil)), Metrics: b.metrics,
	})
	require.NoError(t, err)
	return b, c
}

func (b *bench) pass(d time.Duration) {
	b.database, b.wall, b.passed = b.database.Add(d), b.wall.Add(d), b.passed+d
}

// RECV-2: a machine's own clock, wrong from the start or changed later, is not used.
func TestClock_RECV2_TheMachinesOwnClockDoesNotCount(t *testing.T) {
	for _, ahead := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		b, c := newBench(t, ahead)
		require.Equal(t, noon, c.Now())
		b.pass(time.Minute)
		b.wall = b.wall.Add(time.Hour) // the machine's clock is set
		require.Equal(t, noon.Add(time.Minute), c.Now(), "and before the next reading, too")
		require.NoError(t, c.Sync(t.Context()))
		require.Equal(t, noon.Add(time.Minute), c.Now())
		require.InDelta(t, (ahead + time.Hour).Seconds(), offset(t, b), 1)
		require.Contains(t, b.log.String(), "check NTP")
		b.wall = b.database
		require.NoError(t, c.Sync(t.Context()))
		require.Contains(t, b.log.String(), "agrees with the database's again")
	}
}

func offset(t *testing.T, b *bench) float64 {
	t.Helper()
	families, err := b.metrics.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// EXCL-6: a list that was begun before a moment of the database's must not pass for one that was begun after it, so the clock is
// never ahead; and it does not go back because an answer was slow.
func TestClock_EXCL6_NeverAheadAndNotBackForASlowAnswer(t *testing.T) {
	b, c := newBench(t, 0)
	b.answer = 3 * time.Second
	before := c.Now()
	require.NoError(t, c.Sync(t.Context()))
	require.Equal(t, before.Add(3*time.Second), c.Now(), "what it knew was better than the answer")
	require.Equal(t, b.database, c.Now())

	b.passed += time.Minute // this machine's seconds are short
	require.NoError(t, c.Sync(t.Context()))
	require.False(t, c.Now().After(b.database))
	require.WithinDuration(t, b.database, c.Now(), b.answer)
}

// A machine that was suspended is behind until it has asked; a database whose clock jumps is followed, and that is
// reported.
func TestClock_RECV4_FollowsTheDatabase(t *testing.T) {
	b, c := newBench(t, 0)
	b.database = b.database.Add(time.Hour)
	require.Equal(t, noon, c.Now())
	ran := false
	require.NoError(t, c.Before(func(context.Context) error {
		ran = true
		require.Equal(t, b.database, c.Now(), "a pass begins by asking")
		return nil
	})(t.Context()))
	require.True(t, ran)
	require.Contains(t, b.log.String(), "the database's clock was changed")
	b.database = noon
	require.NoError(t, c.Sync(t.Context()))
	require.Equal(t, noon, c.Now(), "and back")
}

// While the database is unavailable time continues, and no pass begins that would judge by an unchecked clock.
func TestClock_RECV4_GoesOnWhileTheDatabaseIsAway(t *testing.T) {
	b, c := newBench(t, 0)
	b.err = errors.New("the database is away")
	b.pass(time.Minute)
	require.ErrorIs(t, c.Sync(t.Context()), b.err)
	require.Equal(t, noon.Add(time.Minute), c.Now())
	require.ErrorIs(t, c.Before(func(context.Context) error { t.Fatal("it began"); return nil })(t.Context()), b.err)
	_, err := clock.New(t.Context(), clock.Options{Read: func(context.Context) (time.Time, error) { return noon, b.err }})
	require.ErrorIs(t, err, b.err, "and no server starts by a clock that was never checked")
}
