package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// slowLedger records no mint until it is released.
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

// CLAIM-14: a slot bounds concurrent requests to GitHub. Once it has answered the next one may be sent, however long the
// ledger takes to record it.
func TestPoll_CLAIM14_ASlotIsFreeOnceGitHubHasAnswered(t *testing.T) {
	h := newHarness(t)
	ledger := slowLedger{h.store, make(chan struct{})}
	d := h.replica(func(o *dispatch.Options) { o.Store, o.MaxMints = ledger, 1 })
	h.queue(1, 2)
	first, second := h.poll(t.Context(), d, h.pod("linux")), h.poll(t.Context(), d, h.pod("linux"))
	h.eventually("both are minted, and neither is recorded", func() bool { return h.forge.Mints() == 2 })
	close(ledger.let)
	for _, answer := range []<-chan polled{first, second} {
		got := await.Receive(t, answer, "the poll is answered")
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply)
	}
}

// CLAIM-14: a lane is allowed no more than there are slots for, so that no more of its jobs are read and locked. That it
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

// CLAIM-14: a mint that was begun before the limit was used up, and is answered after, does not end the wait for its reset:
// without a recorded wait the account would not be read again.
func TestMintLimiter_CLAIM14_ALateSuccessDoesNotEndTheWaitForTheReset(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	acme := dispatch.Account{ID: 1, InstallationID: 1}
	used := fleet.RateState{Limit: 2, Remaining: 0, Reset: now.Add(time.Hour)}
	for name, spend := range map[string]func(*dispatch.MintLimiter){
		"nothing is left":   func(b *dispatch.MintLimiter) { require.Zero(t, b.Reserve(acme, 1)) },
		"GitHub refused it": func(b *dispatch.MintLimiter) { b.Minted(acme, &fleet.RateLimitedError{Until: used.Reset}) },
	} {
		t.Run(name, func(t *testing.T) {
			rate := fleet.RateState{Limit: 2, Remaining: 2, Reset: used.Reset}
			limiter := dispatch.NewMintLimiter(func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return rate, true }, 0)
			require.Equal(t, 2, limiter.Reserve(acme, 2))
			rate = used
			spend(limiter)
			limiter.Minted(acme, nil)
			limiter.Release(acme.ID, 1)
			limiter.Minted(acme, nil)
			limiter.Release(acme.ID, 1)
			excluded, wait := limiter.Excluded()
			require.Equal(t, []int64{acme.ID}, excluded)
			require.Equal(t, time.Hour, wait)
		})
	}
}

// CLAIM-14: a batch that got fewer slots than it asked for reads again when one is returned, though it got some: what GitHub has left by
// then may be more, or nothing until its reset, which must be waited for.
func TestMintLimiter_CLAIM14_WhoGotSomeOfItLooksAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	acme := dispatch.Account{ID: 1, InstallationID: 1}
	rate := fleet.RateState{Limit: 2, Remaining: 2, Reset: now.Add(time.Hour)}
	limiter := dispatch.NewMintLimiter(func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return rate, true }, 0)
	freed := 0
	limiter.OnFreed(func() { freed++ })
	require.Equal(t, 2, limiter.Reserve(acme, 5))
	rate.Remaining = 0
	limiter.Release(acme.ID, 1)
	require.Equal(t, 1, freed)
	limiter.Release(acme.ID, 1)
	require.Equal(t, 1, freed, "once is enough")
}

// CLAIM-14: another batch that got all that it asked for does not change this, and neither do slots that a batch gives back
// unused.
func TestMintLimiter_CLAIM14_WhoWentWithoutIsNotForgotten(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	acme := dispatch.Account{ID: 1, InstallationID: 1}
	rate := fleet.RateState{Limit: 9, Remaining: 2, Reset: now.Add(time.Hour)}
	limiter := dispatch.NewMintLimiter(func() time.Time { return now }, func(int64) (fleet.RateState, bool) { return rate, true }, 0)
	freed := 0
	limiter.OnFreed(func() { freed++ })
	require.Equal(t, 2, limiter.Reserve(acme, 5))
	rate.Remaining = 9
	require.Equal(t, 1, limiter.Reserve(acme, 1))
	require.True(t, limiter.Unused(acme.ID, 1), "others may have gone without it")
	require.Zero(t, freed, "whose slots they were tells them")
	limiter.Release(acme.ID, 1)
	require.Equal(t, 1, freed)
	require.False(t, limiter.Unused(acme.ID, 1))
}

// CLAIM-14: the limit that was used up was the former installation's: another one is asked at once.
func TestMintLimiter_CLAIM14_AnotherInstallationHasItsOwnLimit(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	limiter := dispatch.NewMintLimiter(func() time.Time { return now }, func(installation int64) (fleet.RateState, bool) {
		return fleet.RateState{Limit: 2, Remaining: 0, Reset: now.Add(time.Hour)}, installation == 1
	}, 0)
	require.Zero(t, limiter.Reserve(dispatch.Account{ID: 1, InstallationID: 1}, 1))
	limiter.Forgive(1)
	require.Equal(t, 1, limiter.Reserve(dispatch.Account{ID: 1, InstallationID: 2}, 1))
}
