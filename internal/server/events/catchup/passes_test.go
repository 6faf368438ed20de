package catchup_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The mode without webhooks, run as the server runs it: a job is queued some seconds after GitHub queued it.
func TestPasses_RECV8_PollingRunsByItself(t *testing.T) {
	w := newWorld(t, nil)
	require.NoError(t, w.in.SetWebhook("", ""))
	c := w.catchUp(func(o *catchup.Options) { o.Poll, o.Now = true, nil })
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	pool, err := ledger.OpenPool(ctx, w.url, 8)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	runner, err := periodic.New(periodic.Options{Pool: pool, Passes: c.Passes()})
	require.NoError(t, err)
	wait.Go(func() { _ = runner.Run(ctx) })
	t.Cleanup(func() { cancel(); await.Return(t, wait.Wait, "the passes stop") }) // before the pool is closed
	_, ids := w.submit("acme/app", 2)
	began := time.Now()
	w.eventually("both are queued", func() bool { return w.states(ids)[fleet.JobQueued] == 2 })
	t.Logf("queued %s after GitHub queued them", time.Since(began))
}
