package roster

import (
	"context"
	"sync"
	"time"
)

// shared is something that one caller reads on behalf of all that wait for done.
type shared[T any] struct {
	began time.Time
	done  chan struct{}
	got   T
	cut   bool // the reader's context ended: it says nothing to others
}

// share returns what was read under that key, if it fits, and reads it otherwise. Callers wait for a reading that began late enough instead
// of beginning their own; one that its reader had to give up is begun again, and never kept. False: ctx ended before.
//
// fits is called with what is there, and with the zero value while that is still being read.
func share[K comparable, T any](
	ctx context.Context, r *Reader, all map[K]*shared[T], key K, fits func(began time.Time, got T) bool, read func() T,
) (T, bool) {
	for {
		r.mu.Lock()
		one := all[key]
		if one == nil || !one.fits(fits) {
			one = &shared[T]{began: r.opt.Now(), done: make(chan struct{})}
			all[key] = one
			r.mu.Unlock()
			return one.read(ctx, read), true
		}
		r.mu.Unlock()
		select {
		case <-one.done:
			if !one.cut {
				return one.got, true
			}
		case <-ctx.Done():
			var none T
			return none, false
		}
	}
}

func (s *shared[T]) fits(fits func(began time.Time, got T) bool) bool {
	select {
	case <-s.done:
		return !s.cut && fits(s.began, s.got)
	default:
		var pending T
		return fits(s.began, pending)
	}
}

func (s *shared[T]) read(ctx context.Context, read func() T) T {
	s.cut = true // if it panics
	defer close(s.done)
	s.got = read()
	s.cut = ctx.Err() != nil
	return s.got
}

// each runs do for every index below n, so many at a time.
func each(n, together int, do func(i int)) {
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(together, n) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}
