package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// cached keeps the last value that was read for a while. Callers that come while it is being read wait for
// that reading. An error is theirs too and is not kept, nor is a former value given in its place.
type cached[T any] struct {
	keep time.Duration
	now  func() time.Time
	read func(ctx context.Context) (T, error)

	mu      sync.Mutex
	value   T
	readAt  time.Time // when the reading of value began; zero: there is none
	reading *reading[T]
}

// reading is one call of read, by the first caller.
type reading[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// errReadingDied is what waiting callers get when read panics.
var errReadingDied = errors.New("the reading ended without an outcome")

func (c *cached[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	now := c.now()
	if age := now.Sub(c.readAt); !c.readAt.IsZero() && age >= 0 && age < c.keep {
		defer c.mu.Unlock()
		return c.value, nil
	}
	r := c.reading
	if r == nil {
		r = &reading[T]{done: make(chan struct{})}
		c.reading = r
		c.mu.Unlock()
		c.run(ctx, r, now)
		return r.value, r.err
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// forget drops what is kept; a reading that is under way stays whose it is, and is kept after.
func (c *cached[T]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt = time.Time{}
}

// run reads for all waiting callers: it continues when the first one cancels.
func (c *cached[T]) run(ctx context.Context, r *reading[T], now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalsTimeout)
	defer cancel()
	defer close(r.done)
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reading = nil
		if r.err == nil {
			c.value, c.readAt = r.value, now
		}
	}()
	r.err = errReadingDied
	r.value, r.err = c.read(ctx)
}
