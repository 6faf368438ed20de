package catchup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// For any shares, limit and rhythm: a window spends no more than the share of what is left, and never the last tenth.
func TestQuota_NeverMoreThanItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		s := share{
			spread: rapid.Float64Range(0, 1).Draw(t, "spread"), burst: rapid.Float64Range(0, 0.2).Draw(t, "burst"),
		}
		limit := rapid.IntRange(10, 15_000).Draw(t, "limit")
		state := fleet.RateState{
			Limit: limit, Remaining: rapid.IntRange(0, limit).Draw(t, "remaining"),
			Reset: now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes left")) * time.Minute),
		}
		b := newQuota(s, func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return state, true })
		first := float64(state.Remaining)
		spent, began := 0, now
		for now.Before(state.Reset) {
			minute := 0
			before := float64(state.Remaining)
			for b.spend(1) {
				state.Remaining--
				spent++
				minute++
				require.GreaterOrEqual(t, float64(state.Remaining), reserve*float64(limit)-1)
			}
			left := max(1, state.Reset.Sub(now).Minutes())
			require.LessOrEqual(t, float64(minute), before*min(1, s.burst+s.spread/left)+1, "after %s", now.Sub(began))
			now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
		}
		if s.burst == 0 && s.spread <= 0.5 {
			require.LessOrEqual(t, float64(spent), first, "it never asks for what is not there")
		}
	})
}

func TestQuota_OnlyWhatGitHubLastSaidCounts(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	state, known := fleet.RateState{}, false
	b := newQuota(share{spread: 0.25}, func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return state, known })
	take := func(installation int64) (n int) {
		for b.spend(installation) {
			n++
		}
		return n
	}
	require.True(t, b.spend(1), "the first call finds out")
	state, known = fleet.RateState{Limit: 5000, Remaining: 4999, Reset: now.Add(time.Hour)}, true
	require.Equal(t, 18, take(1))
	require.Equal(t, 18, take(2), "each installation has a quota of its own")
	require.Zero(t, take(1))
	now = now.Add(10 * time.Minute)
	require.Equal(t, 22, take(1), "at most a minute's is kept")
	state.Remaining = 499
	now = now.Add(10 * time.Minute)
	require.Zero(t, take(1))
	now = state.Reset.Add(time.Second) // a new window, of which nothing is known yet
	require.Equal(t, 18, take(1))
	state = fleet.RateState{}
	now = now.Add(time.Minute)
	require.Equal(t, withoutLimits, take(1), "an Enterprise Server without limits")
	b.refund(1)
	require.True(t, b.spend(1))
	require.False(t, b.spend(1))
}

// Free calls are refunded, but within a bound: GitHub counts them towards its secondary limit.
func TestQuota_FreeCallsAreBoundedToo(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	state := fleet.RateState{Limit: 5000, Remaining: 5000, Reset: now.Add(time.Hour)}
	b := newQuota(share{spread: 0.25}, func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return state, true })
	b.refund(1) // no request has used it yet
	for minute := range 5 {
		free := 0
		for ; free <= 10*mostFree && b.spend(1); free++ {
			b.refund(1)
		}
		require.InDelta(t, mostFree+19, free, 2, "minute %d", minute)
		now = now.Add(time.Minute)
	}
}
