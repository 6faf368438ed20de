package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// CLAIM-17: the epoch rises once per interval, however many replicas try. It also rises at once when the database's clock was
// set back: a restore within that time must show as well.
func TestBeat_CLAIM17_AClockThatWasSetBackDoesNotStopTheEpoch(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	last := func() string { // the last beat, as the database's clock sees it
		row, err := store.Epoch(ctx)
		require.NoError(t, err)
		if row.BeatenAt.After(row.Now) {
			return "ahead of the clock"
		}
		return "past"
	}
	beat := func(every time.Duration) int64 {
		row, err := store.Epoch(ctx)
		require.NoError(t, err)
		require.NoError(t, store.Beat(ctx, row.Mark, every))
		after, err := store.Epoch(ctx)
		require.NoError(t, err)
		return after.Epoch - row.Epoch
	}
	require.EqualValues(t, 1, beat(0))
	require.EqualValues(t, 0, beat(time.Hour), "another replica was faster")

	_, err = store.pool.Exec(ctx, `UPDATE ledger_epoch SET beaten_at = now() + interval '6 hours'`) // the clock went back by six hours
	require.NoError(t, err)
	require.Equal(t, "ahead of the clock", last())
	require.EqualValues(t, 1, beat(time.Hour))
	require.Equal(t, "past", last(), "the beat is the clock's again")
	require.EqualValues(t, 0, beat(time.Hour), "and is not repeated within the interval")
}

// CLAIM-17: no time of before the database's clock was set back makes a hold last longer than any other.
func TestBeginHold_CLAIM17_AClockThatWasSetBackDoesNotExtendIt(t *testing.T) {
	ctx := t.Context()
	store, err := Open(ctx, postgrestest.NewDatabase(t, Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	bounds := epoch.Bounds{Hold: time.Minute}
	setBack := func(by time.Duration) { // all that the row says is as much later then
		_, err := store.pool.Exec(ctx, `UPDATE ledger_epoch SET hold_until = hold_until + $1::float8 * interval '1 second',
			rebuilding_until = rebuilding_until + $1::float8 * interval '1 second', rebuilt_at = rebuilt_at + $1::float8 * interval '1 second'`, by.Seconds())
		require.NoError(t, err)
	}
	read := func() epoch.Row {
		row, err := store.Epoch(ctx)
		require.NoError(t, err)
		return row
	}
	known := epoch.Mark{Lineage: read().Lineage, Epoch: 9}
	check := func() epoch.Decision {
		row := read()
		d := epoch.Judge(epoch.View{Known: known, Copy: epoch.Copy{Mark: known}, Row: row}, bounds)
		if d.Step == epoch.Begin {
			require.NoError(t, store.BeginHold(ctx, row.Mark, d, bounds.Hold))
		}
		return d
	}
	lost := check().Lost
	require.False(t, lost.IsZero())
	setBack(6 * time.Hour)
	require.Equal(t, epoch.Begin, check().Step)
	row := read()
	require.False(t, row.HoldUntil.After(row.Now.Add(bounds.Hold)))
	require.Equal(t, known, row.Over)
	require.WithinDuration(t, lost, row.LostSince, time.Millisecond)
	require.Equal(t, epoch.Hold, check().Step, "and does not begin a third time")

	begin := func() (epoch.Turn, bool) {
		turn, mine, err := store.BeginRebuild(ctx, 30*time.Second, time.Hour)
		require.NoError(t, err)
		return turn, mine
	}
	_, mine := begin()
	require.True(t, mine)
	_, mine = begin()
	require.False(t, mine, "another replica has the turn")
	setBack(6 * time.Hour)
	turn, mine := begin()
	require.True(t, mine, "the lease of a time that lies ahead counts as none")
	require.NoError(t, store.EndRebuild(ctx, turn, read().Now, 0))
	_, mine = begin()
	require.False(t, mine, "it was rebuilt a moment ago")
	setBack(6 * time.Hour)
	_, mine = begin()
	require.True(t, mine, "it was rebuilt at no time that has come")
	_, err = store.pool.Exec(ctx, `UPDATE ledger_epoch SET hold_until = now()`)
	require.NoError(t, err)
	ended, err := store.EndHold(ctx, known)
	require.NoError(t, err)
	require.False(t, ended, "nor does that end the hold")
}
