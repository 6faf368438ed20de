package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
