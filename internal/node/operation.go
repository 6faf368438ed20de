package node

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Back-off of a step that fails: it doubles from the first to the last.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
	// slowestRetry is for what is dear to try: an image is pulled, a virtual machine is started.
	slowestRetry = time.Minute
)

// operation is one step of a worker that runs beside it. At most one of each key is under way.
type operation struct {
	running bool
	cancel  context.CancelFunc
	retryAt time.Time // not before
	backoff time.Duration
	since   time.Time // of the one under way
	problem string    // of the last one, if it failed
}

func (w *worker) op(key string) *operation {
	if w.ops[key] == nil {
		w.ops[key] = &operation{}
	}
	return w.ops[key]
}

// begin starts an operation unless it is under way or waiting for its next try. do runs beside the worker; done runs in the
// worker afterwards, whether there was an error or not.
func (w *worker) begin(ctx context.Context, key string, timeout time.Duration, do func(context.Context) error, done func(error)) {
	op := w.op(key)
	if op.running || w.a.opts.Clock.Now().Before(op.retryAt) {
		return
	}
	op.running, op.since = true, w.a.opts.Clock.Now()
	var opCtx context.Context
	if timeout > 0 {
		opCtx, op.cancel = context.WithTimeout(ctx, timeout)
	} else {
		opCtx, op.cancel = context.WithCancel(ctx)
	}
	w.wg.Go(func() {
		err := do(opCtx)
		canceled := opCtx.Err() != nil && timeout == 0
		op.cancel()
		w.post(ctx, func() {
			op.running, op.problem = false, ""
			if kind := operationOf(key); kind != "" {
				w.a.metrics.operation(kind, err, w.a.opts.Clock.Since(op.since))
			}
			switch {
			case err == nil:
				op.backoff, op.retryAt = 0, time.Time{}
			case !canceled:
				op.problem = err.Error()
				w.retryLater(op, longestRetry(key))
				w.log.Warn("pod operation failed, retrying", "step", key, "in", op.retryAt.Sub(w.a.opts.Clock.Now()), "error", err)
			}
			done(err)
		})
	})
}

// longestRetry is the longest back-off of a step.
func longestRetry(key string) time.Duration {
	switch verb(operationOf(key)) {
	case doPrepare, doStart:
		return slowestRetry
	}
	return lastRetry
}

// retryLater tries again after half of the back-off at least, and all of it at most: what failed for all pods at once, as when the API server
// is restarted, is not tried for all of them at once.
func (w *worker) retryLater(op *operation, longest time.Duration) {
	op.backoff = min(max(op.backoff*2, firstRetry), longest)
	w.wakeAt(op, op.backoff/2+time.Duration(w.a.opts.Random()*float64(op.backoff/2)))
}

// wakeAt keeps the operation from being begun for a while, and looks again then.
func (w *worker) wakeAt(op *operation, in time.Duration) {
	op.retryAt = w.a.opts.Clock.Now().Add(in)
	w.wakeIn(in)
}

// wakeIn makes the worker look again after a while. A timer that fires after the worker's end does nothing. It holds the
// channel alone: grace periods last hours, and would keep as long everything of a pod that has gone.
func (w *worker) wakeIn(in time.Duration) clock.Timer {
	wake := w.wake
	return w.a.opts.Clock.AfterFunc(in, func() { poke(wake) })
}

func (w *worker) underWay(key string) bool { return w.ops[key] != nil && w.ops[key].running }

func (w *worker) cancelOp(key string) {
	if op := w.ops[key]; op != nil && op.running {
		op.cancel()
	}
}

// post hands a function to the worker's goroutine.
func (w *worker) post(ctx context.Context, f func()) {
	select {
	case w.results <- f:
	case <-ctx.Done():
	}
}

// poke makes the worker look again.
func (w *worker) poke() { poke(w.wake) }

func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
