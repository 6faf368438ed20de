package queues

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A leader that is asked to stop does so as soon as its current passes are over, regardless of the queue: the next leader waits for it.
func TestOptions_RECV5_AControllerThatIsToldToStopDoes(t *testing.T) {
	for range 100 {
		stop(t, Options(8))
	}
}

// stop stops a controller in the midst of its work, with some of its workers busy and others about to be given something.
func stop(t *testing.T, options controller.Options) {
	t.Helper()
	const busy = 200
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	var passes atomic.Int64
	enough := make(chan struct{})
	add := func(n int64) {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.FormatInt(n, 10)}})
	}
	options.SkipNameValidation, options.NeedLeaderElection, options.Logger = ptr.To(true), ptr.To(false), logr.Discard()
	options.Reconciler = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		n := passes.Add(1)
		if n == busy {
			close(enough)
		}
		add(8 + n) // each pass gives rise to another
		return reconcile.Result{}, nil
	})
	c, err := controller.NewUnmanaged("stopped", options)
	require.NoError(t, err)
	require.NoError(t, c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		for n := range int64(7) { // one worker waits
			add(n)
		}
		return nil
	})))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	await.Receive(t, enough, "enough reconciliations are under way")
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the controller has not stopped")
	}
}
