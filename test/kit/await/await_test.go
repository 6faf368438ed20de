package await_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// recorder is a test that fails without failing this one.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs f as a test of its own, and returns with what it has failed.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	var running sync.WaitGroup
	running.Go(func() { f(r) })
	running.Wait() // bounded: what f waits for has a bound
	return r.said
}

func TestReceive_ReturnsTheValue(t *testing.T) {
	ch := make(chan int, 1)
	ch <- 3
	require.Equal(t, 3, await.Receive(t, ch, "a number"))
	close(ch)
	require.Zero(t, await.Receive(t, ch, "the end"))
}

func TestReceive_SaysWhatDidNotHappen(t *testing.T) {
	said := failure(t, func(t testing.TB) { await.ReceiveWithin(t, time.Millisecond, make(chan int), "the poll is answered") })
	require.Contains(t, said, "not within 1ms: the poll is answered")
	require.Contains(t, said, "TestReceive_SaysWhatDidNotHappen", "the goroutines that wait")
	require.NotContains(t, said, "testing.(*M).Run", "and no others")
}

func TestResult_IsAnErrorInsteadOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan error, 1)
		ch <- io.EOF
		require.ErrorIs(t, await.Result(ch, "the end"), io.EOF)
		require.ErrorContains(t, await.Result(ch, "the server stops"), "not within 1m0s: the server stops")
	})
}

func TestReturn(t *testing.T) {
	returned := false
	await.Return(t, func() { returned = true }, "the function returns")
	require.True(t, returned)

	end := make(chan struct{})
	defer close(end)
	said := failure(t, func(t testing.TB) { await.ReturnWithin(t, time.Millisecond, func() { <-end }, "the process exits") }) // bounded: closed above
	require.Contains(t, said, "not within 1ms: the process exits")
}

func TestCall(t *testing.T) {
	require.Equal(t, 3, await.Call(t, func() int { return 3 }, "the function returns"))
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		said := failure(t, func(t testing.TB) { await.Call(t, func() int { <-end; return 3 }, "the process exits") }) // bounded: closed above
		require.Contains(t, said, "not within 1m0s: the process exits")
	})
}

func TestOrEnd_EndsWithTheTest(t *testing.T) {
	var waiting sync.WaitGroup
	t.Run("", func(t *testing.T) {
		waiting.Go(func() { await.OrEnd(t, make(chan int)) })
	})
	await.Return(t, waiting.Wait, "the double releases")
}

func TestContext_HasADeadline(t *testing.T) {
	var ended context.Context
	t.Run("", func(t *testing.T) {
		ended = await.Context(t)
		deadline, ok := ended.Deadline()
		require.True(t, ok)
		require.LessOrEqual(t, time.Until(deadline), await.Limit)
		require.NoError(t, ended.Err())
		t.Cleanup(func() { require.NoError(t, await.Context(t).Err(), "a cleanup can use it") })
	})
	require.ErrorIs(t, ended.Err(), context.Canceled)
}
