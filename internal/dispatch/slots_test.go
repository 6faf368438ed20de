package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dispatch"
)

// slowLedger records no mint before it is let.
type slowLedger struct {
	dispatch.Store
	let chan struct{}
}

func (s slowLedger) RecordMint(ctx context.Context, podUID string, generation, runnerID int64, now time.Time) (bool, error) {
	select {
	case <-s.let:
	case <-ctx.Done():
	}
	return s.Store.RecordMint(ctx, podUID, generation, runnerID, now)
}

// CLAIM-14: a slot bounds what GitHub is asked at a time. Once it has answered the next one may be asked, however long the
// ledger takes to hear of it.
func TestPoll_CLAIM14_ASlotIsFreeOnceGitHubHasAnswered(t *testing.T) {
	h := newHarness(t)
	ledger := slowLedger{h.store, make(chan struct{})}
	d := h.replica(func(o *dispatch.Options) { o.Store, o.MaxMints = ledger, 1 })
	h.queue(1, 2)
	first, second := h.poll(t.Context(), d, h.pod("linux")), h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("both are minted, and neither is recorded", func() bool { return h.forge.minted() == 2 })
	close(ledger.let)
	for _, answer := range []<-chan polled{first, second} {
		got := <-answer
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	}
}

// CLAIM-14: a lane is allowed no more than there are slots for, so that no more of its jobs are looked at and locked. That it
// gave no more than that does not make it an empty one.
func TestSlots_CLAIM14_BoundWhatIsPicked(t *testing.T) {
	acme, globex := dispatch.Account{ID: 1}, dispatch.Account{ID: 2}
	lanes := []dispatch.Lane{{LabelKey: "a", Account: acme}, {LabelKey: "b", Account: acme}, {LabelKey: "a", Account: globex}}
	admission := dispatch.Admission{Room: map[int64]int64{1: 40, 2: 40}}
	for _, lane := range lanes {
		admission.Allowances = append(admission.Allowances, dispatch.Allowance{Lane: lane, Allowed: 10})
	}
	slots := map[int64]int{1: 3, 2: 0}
	batch := dispatch.Batch{
		Polls: make([]dispatch.Poll, 10), Reserve: func(account dispatch.Account, want int) int { return min(want, slots[account.ID]) },
	}
	backed := batch.Slots(&admission, map[int64]int{})
	require.Equal(t, []dispatch.Allowance{{Lane: lanes[0], Allowed: 3}, {Lane: lanes[1], Allowed: 3}}, backed)
	picked := []dispatch.QueuedJob{
		{ID: 1, AccountID: 1, LabelKey: "a"}, {ID: 2, AccountID: 1, LabelKey: "a"}, {ID: 3, AccountID: 1, LabelKey: "a"}, {ID: 4, AccountID: 1, LabelKey: "b"},
	}
	require.Equal(t, []dispatch.Parking{{Lane: lanes[1], Reason: dispatch.ParkedEmpty}}, dispatch.Exhausted(admission, picked))
}
