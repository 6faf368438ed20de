package queues

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A failed object is retried after retryFirst, which doubles up to retrySlowest, separately for each object. The work queue's default has
// an overall rate limit as well: after an outage of the API server the last of thousands would wait for minutes.
const (
	retryFirst   = 5 * time.Millisecond
	retrySlowest = 1000 * time.Second
)

// Options returns the options of a controller with the given number of workers.
//
// RECV-5: controller-runtime's default priority queue can deadlock on shutdown (kubernetes-sigs/controller-runtime#3538, fixed after
// v0.24): it hands an object to a worker that has just exited, and keeps its locks while it does. The remaining workers cannot report
// completion. The process hangs until its grace period ends, and with it the Lease that the next leader waits for.
func Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		UsePriorityQueue:        ptr.To(false),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retrySlowest),
	}
}
