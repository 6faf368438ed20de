package periodic_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// Any replica serves a check, soon, also one that another has asked for.
func TestCheckPod_IsServedByAnyReplicaWithinAboutASecond(t *testing.T) {
	t.Parallel()
	url := database(t)
	checked := make(chan string, 10)
	opts := periodic.Options{Check: func(_ context.Context, pod string) error { checked <- pod; return nil }, Log: testLog(t)}
	asking := prepare(t, url, opts) // it never runs
	start(t, url, opts)
	require.Eventually(t, func() bool { // the worker is there
		return ledgertest.Int(t, url, "SELECT count(*) FROM river.river_queue") > 0
	}, patience, interval)
	asked := time.Now()
	require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
	require.Equal(t, "pod-1", wait(t, checked, "the check"))
	require.Less(t, time.Since(asked), 3*time.Second, "about one, on an idle machine")

	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job WHERE state = 'completed'") == 1
	}, patience, interval)
	require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
	wait(t, checked, "a check after a completed check")
}

// Requests whose check has not started are one; a request that comes while the pod is checked is served after it,
// because that check may have read its evidence already.
func TestCheckPod_CoalescesWithoutLosingTheLast(t *testing.T) {
	t.Parallel()
	url := database(t)
	inside, proceed := make(chan int32, 10), make(chan struct{})
	var looks atomic.Int32
	opts := periodic.Options{Check: func(context.Context, string) error {
		inside <- looks.Add(1)
		await.OrEnd(t, proceed)
		return nil
	}}
	asking := prepare(t, url, opts)
	for range 10 {
		require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
	}
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job"))
	start(t, url, opts)
	t.Cleanup(func() { close(proceed) })
	wait(t, inside, "the first look")
	for range 10 {
		require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
	}
	require.Equal(t, int32(2), wait(t, inside, "the look that the later requests asked for"))
	// Those that came after the second look had begun have asked for a third, all of them together.
	waiting := ledgertest.Int(t, url, "SELECT count(*) FROM river.river_job WHERE state <> 'running'")
	require.LessOrEqual(t, waiting, int64(1), "ten requests are one more look")
}

// A check that died with its replica blocks no later request.
func TestCheckPod_ADeadLookHoldsUpNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	checked := make(chan string, 10)
	opts := periodic.Options{Check: func(_ context.Context, pod string) error { checked <- pod; return nil }}
	asking := prepare(t, url, opts)
	for range 3 {
		require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
		ledgertest.Exec(t, url, "UPDATE river.river_job SET state = 'running', attempted_at = now()")
	}
	require.NoError(t, asking.CheckPod(t.Context(), "pod-1"))
	start(t, url, opts)
	wait(t, checked, "the check")
}

func TestCheckPod_AFailedLookIsTriedAgain(t *testing.T) {
	t.Parallel()
	url := database(t)
	tried := make(chan struct{}, 10)
	opts := periodic.Options{Check: func(context.Context, string) error { tried <- struct{}{}; return errors.New("not yet") }}
	r := start(t, url, opts)
	require.NoError(t, r.CheckPod(t.Context(), "pod-1"))
	wait(t, tried, "the first try")
	wait(t, tried, "the second try")
}

func TestCheckPod_WithoutACheckIsRefused(t *testing.T) {
	t.Parallel()
	r := prepare(t, database(t), periodic.Options{})
	require.ErrorIs(t, r.CheckPod(t.Context(), "pod-1"), periodic.ErrNoCheck)
}
