package image

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// queue starts an acquire and waits until it is queued.
func queue(t *testing.T, s *slots, ctx context.Context, tenant string) <-chan error { //nolint:revive // the context is the subject
	t.Helper()
	s.mu.Lock()
	before := len(s.queued)
	s.mu.Unlock()
	result := make(chan error, 1)
	go func() { result <- s.acquire(ctx, tenant) }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queued) > before
	}, await.Limit, 1e6)
	return result
}

func TestSlots_ATenantDoesNotWaitForAnother(t *testing.T) {
	s := newSlots(2, 3)
	for range 2 {
		require.NoError(t, s.acquire(t.Context(), "slow"))
	}
	third := queue(t, s, t.Context(), "slow")
	require.NoError(t, s.acquire(t.Context(), "other"), "the third slot is not the slow tenant's")
	require.Empty(t, third)

	// Of those who wait for the last slot, the tenant with the fewest goes first.
	last := queue(t, s, t.Context(), "late")
	s.release("slow")
	require.NoError(t, await.Receive(t, last, "the turn of the tenant that uses none"))
	require.Empty(t, third)
	s.release("other")
	require.NoError(t, await.Receive(t, third, "the slow tenant's turn"))
	for _, tenant := range []string{"slow", "slow", "late"} {
		s.release(tenant)
	}
	require.Empty(t, s.used)
	require.Zero(t, s.all)
	require.Empty(t, s.queued)
}

func TestSlots_AWaitEndsWithItsContext(t *testing.T) {
	s := newSlots(1, 1)
	require.NoError(t, s.acquire(t.Context(), "a"))
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting := queue(t, s, ctx, "a")
	reason := errors.New("enough")
	cancel(reason)
	require.ErrorIs(t, await.Receive(t, waiting, "the end of the wait"), reason)
	s.release("a")
	require.NoError(t, s.acquire(t.Context(), "a"), "who left has no slot")
}

func TestSlots_TheQueueOfATenantIsBounded(t *testing.T) {
	s := newSlots(1, 2)
	require.NoError(t, s.acquire(t.Context(), "a"))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting []<-chan error
	for range maxQueued {
		waiting = append(waiting, queue(t, s, ctx, "a"))
	}
	require.ErrorIs(t, s.acquire(ctx, "a"), errQueueFull)
	require.NoError(t, s.acquire(ctx, "b"))
	cancel()
	for _, result := range waiting {
		require.Error(t, await.Receive(t, result, "the end of the wait"))
	}
}

func TestSlots_NeverMoreThanTheLimits(t *testing.T) {
	s := newSlots(2, 3)
	var mu sync.Mutex
	running := map[string]int{}
	var all sync.WaitGroup
	for i := range 60 {
		tenant := []string{"a", "b", "c"}[i%3]
		all.Go(func() {
			if s.acquire(t.Context(), tenant) != nil {
				t.Error("no slot")
				return
			}
			mu.Lock()
			running[tenant]++
			if running[tenant] > 2 || running["a"]+running["b"]+running["c"] > 3 {
				t.Error("too many at once")
			}
			mu.Unlock()
			mu.Lock()
			running[tenant]--
			mu.Unlock()
			s.release(tenant)
		})
	}
	await.Return(t, all.Wait, "all turns")
}
