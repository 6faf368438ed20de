package controller

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// RECV-5: a controller with much to do stops when it is told to, so that the next leader begins at once.
func TestQueues_RECV5_AControllerWithMuchToDoStops(t *testing.T) {
	for range 60 {
		busy := make(chan struct{}, 1)
		c, err := controller.NewTypedUnmanaged("busy", controller.TypedOptions[int]{
			MaxConcurrentReconciles: 64, UsePriorityQueue: queues().UsePriorityQueue, SkipNameValidation: queues().SkipNameValidation,
			Reconciler: reconcile.TypedFunc[int](func(context.Context, int) (reconcile.Result, error) {
				select {
				case busy <- struct{}{}:
				default:
				}
				return reconcile.Result{RequeueAfter: time.Nanosecond}, nil // there is always something ready
			}),
			LogConstructor: func(*int) logr.Logger { return logr.Discard() },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, c.Watch(source.TypedFunc[int](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[int]) error {
			for n := range 256 {
				queue.Add(n)
			}
			return nil
		})))
		stopped := make(chan error, 1)
		go func() { stopped <- c.Start(ctx) }()
		for range 100 {
			<-busy
		}
		cancel()
		select {
		case err := <-stopped:
			require.NoError(t, err)
		case <-time.After(20 * time.Second):
			require.FailNow(t, "it does not stop")
		}
	}
}
