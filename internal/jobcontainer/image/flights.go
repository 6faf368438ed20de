package image

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

var (
	errClosed   = errors.New("the resolver is closed")
	errTimedOut = errors.New("the registry did not respond in time")
	errNoTurn   = errors.New("no turn within the time for one image")
)

// panicError is a panic while a registry's responses were read.
type panicError struct{ detail string }

func (e *panicError) Error() string { return e.detail }

// flightKey is for whom an image is asked for. A tenant does not join another's request, which may wait for that tenant's turn.
type flightKey struct {
	tenant string
	key    key
}

// flights makes callers that want the same at the same time share one request. It owns the goroutines of the requests.
type flights struct {
	mu      sync.Mutex
	current map[flightKey]*flight
	ctx     context.Context // of all requests
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

type flight struct {
	started time.Time
	callers int
	cancel  context.CancelFunc
	done    chan struct{}
	found   cached
	err     error
}

func newFlights() *flights {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &flights{current: map[flightKey]*flight{}, ctx: ctx, cancel: cancel}
}

// do runs look, or joins one for the same key that started less than maxAge before now, or waits for any if the key has a digest. look
// is canceled when all of its callers have left.
func (f *flights) do(ctx context.Context, k flightKey, now time.Time, maxAge time.Duration, look func(context.Context) (cached, error)) (cached, error) {
	f.mu.Lock()
	if f.ctx.Err() != nil {
		f.mu.Unlock()
		return cached{}, errClosed
	}
	current := f.current[k]
	if current == nil || k.key.name.Digest == "" && now.Sub(current.started) >= maxAge {
		current = f.start(k, now, look)
	}
	current.callers++
	f.mu.Unlock()
	select {
	case <-current.done:
		return current.found, current.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if current.callers--; current.callers == 0 {
		current.cancel()
		f.forget(k, current)
	}
	return cached{}, fmt.Errorf("resolving an image: %w", context.Cause(ctx))
}

func (f *flights) start(k flightKey, now time.Time, look func(context.Context) (cached, error)) *flight {
	ctx, cancel := context.WithCancel(f.ctx)
	current := &flight{started: now, cancel: cancel, done: make(chan struct{})}
	f.current[k] = current
	f.running.Go(func() {
		defer cancel()
		current.found, current.err = safely(ctx, look)
		f.mu.Lock()
		f.forget(k, current)
		f.mu.Unlock()
		close(current.done)
	})
	return current
}

// forget removes the flight unless a later one has its place.
func (f *flights) forget(k flightKey, current *flight) {
	if f.current[k] == current {
		delete(f.current, k)
	}
}

func (f *flights) close() {
	f.mu.Lock()
	f.cancel(errClosed)
	f.mu.Unlock()
	f.running.Wait()
}

// safely turns a panic into an error: what a registry sends must not end the controller.
func safely(ctx context.Context, look func(context.Context) (cached, error)) (found cached, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &panicError{fmt.Sprintf("panic: %v\n%s", reason, debug.Stack())}
		}
	}()
	return look(ctx)
}
