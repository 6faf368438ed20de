package ledger

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func doubler(most, size int, gate <-chan struct{}) (*coalescer[int, int], *[][]int) {
	var mu sync.Mutex
	var batches [][]int
	return &coalescer[int, int]{most: most, size: size, run: func(_ context.Context, batch []int) ([]int, error) {
		if gate != nil {
			<-gate // bounded: the test closes it
		}
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, batch)
		out := make([]int, len(batch))
		for i, n := range batch {
			if n < 0 {
				return nil, errors.New("negative")
			}
			out[i] = 2 * n
		}
		return out, nil
	}}, &batches
}

func (c *coalescer[A, R]) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

func TestCoalescer_CallsThatWaitGoTogether(t *testing.T) {
	gate := make(chan struct{})
	c, batches := doubler(1, 4, gate)
	var wg sync.WaitGroup
	start := func(n int) {
		wg.Go(func() {
			got, err := c.do(context.Background(), n)
			if err != nil || got != 2*n {
				t.Errorf("%d gave %d, %v", n, got, err)
			}
		})
	}
	start(1)
	gate <- struct{}{} // the first one is alone
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Equal(t, [][]int{{1}}, *batches)

	start(2)
	require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.flying == 1 && len(c.waiting) == 0 }, patience, interval)
	for n := 3; n <= 8; n++ {
		start(n)
	}
	require.Eventually(t, func() bool { return c.queued() == 6 }, patience, interval)
	close(gate)
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Len(t, *batches, 4, "one alone, one alone, four together, the two that were left")
	require.Zero(t, c.flying)
	require.Empty(t, c.waiting)
}

// A herd that one answer set free asks for the next thing together: its first one does not go alone.
func TestCoalescer_WhoCanRunWithTheLeaderGoesWithIt(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one after another, so that no call finds another under way
	const herd = 100
	c, batches := doubler(1, 2*herd, nil)
	var wg sync.WaitGroup
	for n := range herd {
		wg.Go(func() {
			if got, err := c.do(context.Background(), n); err != nil || got != 2*n {
				t.Errorf("%d gave %d, %v", n, got, err)
			}
		})
	}
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Less(t, len(*batches), herd/10, "of %d calls", herd)
}

func TestCoalescer_AFailureIsOfThatBatchOnly(t *testing.T) {
	c, _ := doubler(1, 4, nil)
	_, err := c.do(t.Context(), -1)
	require.EqualError(t, err, "negative")
	got, err := c.do(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, 8, got)
}

func TestCoalescer_AbandonedCallsLeaveNoneBehind(t *testing.T) {
	gate := make(chan struct{})
	c, _ := doubler(1, 1, gate)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	call := func(ctx context.Context, n int, want error) {
		wg.Go(func() {
			if _, err := c.do(ctx, n); !errors.Is(err, want) {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	call(context.Background(), 1, nil)
	require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.flying == 1 && len(c.waiting) == 0 }, patience, interval)
	call(ctx, 2, context.Canceled)
	require.Eventually(t, func() bool { return c.queued() == 1 }, patience, interval)
	call(context.Background(), 3, nil)
	require.Eventually(t, func() bool { return c.queued() == 2 }, patience, interval)
	cancel()
	require.Eventually(t, func() bool { return c.queued() == 1 }, patience, interval)
	close(gate)
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Zero(t, c.flying)
}

func TestCoalescer_UnderLoadEveryCallIsAnswered(t *testing.T) {
	c, _ := doubler(2, 8, nil)
	var wg sync.WaitGroup
	for n := range 2000 {
		wg.Go(func() {
			got, err := c.do(context.Background(), n)
			if err != nil || got != 2*n {
				t.Errorf("%d gave %d, %v", n, got, err)
			}
		})
	}
	await.Return(t, wg.Wait, "the concurrent calls return")
	require.Zero(t, c.flying)
}

// A statement that hangs, for example on a dead connection, loses its turn: others are answered, but only a bounded number.
func TestCoalescer_WhatHangsBlocksNoOther(t *testing.T) {
	gate := make(chan struct{})
	c, _ := doubler(1, 4, nil)
	answer := c.run
	c.patience = time.Millisecond
	c.run = func(ctx context.Context, batch []int) ([]int, error) {
		if batch[0] < 0 {
			<-gate // bounded: the test closes it
		}
		return answer(ctx, batch)
	}
	var hanging sync.WaitGroup
	for n := 1; n <= mostLate; n++ {
		hanging.Go(func() { _, _ = c.do(context.Background(), -n) })
		require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.late == n && c.flying == 0 }, patience, interval)
		got, err := c.do(t.Context(), n)
		require.NoError(t, err)
		require.Equal(t, 2*n, got)
	}
	hanging.Go(func() { _, _ = c.do(context.Background(), -9) })
	require.Eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.flying == 1 && len(c.waiting) == 0 }, patience, interval)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.do(ctx, 5)
	require.ErrorIs(t, err, context.DeadlineExceeded, "one that is late keeps its turn where there are enough of them")
	gate <- struct{}{} // one of those that are late ends, or the last one itself
	gate <- struct{}{}
	later, done := context.WithTimeout(t.Context(), patience)
	defer done()
	got, err := c.do(later, 6)
	require.NoError(t, err, "and loses it when there are fewer")
	require.Equal(t, 12, got)
	close(gate)
	await.Return(t, hanging.Wait, "the concurrent calls return")
	require.Equal(t, []int{0, 0}, []int{c.late, c.flying})
}
