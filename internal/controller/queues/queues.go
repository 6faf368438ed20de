package queues

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What has failed is tried again after retryFirst, which doubles up to retrySlowest, each object by itself. The work queue's own
// standard has a bucket for all of them besides: after an outage of the API server the last of thousands would wait for minutes.
const (
	retryFirst   = 5 * time.Millisecond
	retrySlowest = 1000 * time.Second
)

// Options are those of a controller that reconciles so many objects at once.
//
// RECV-5: the library's standard, its priority queue, can lock itself for good when it is shut down (kubernetes-sigs/controller-runtime#3538,
// mended after v0.24): it hands an object to a worker that has just left, and keeps its locks while it does. Whoever still works then
// never gets to say that it is done, so that the process hangs until its grace is over, and with it the Lease that the next leader
// waits for.
func Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		UsePriorityQueue:        ptr.To(false),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retrySlowest),
	}
}
