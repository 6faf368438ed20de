package image

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// maxQueued is how many images of one tenant may wait for a turn.
const maxQueued = 64

// errQueueFull says that a tenant has maxQueued images waiting.
var errQueueFull = errors.New("too many images are queued")

// slots limits how many images are resolved at once, per tenant and in total. A tenant whose registries are slow waits for its own
// slots, and the others do not wait for it.
type slots struct {
	perTenant, total int

	mu     sync.Mutex
	used   map[string]int
	all    int
	queued []*waiter // in the order of their requests
}

type waiter struct {
	tenant  string
	granted chan struct{}
}

func newSlots(perTenant, total int) *slots {
	return &slots{perTenant: perTenant, total: total, used: map[string]int{}}
}

// acquire waits for a slot until ctx ends. The caller releases it.
func (s *slots) acquire(ctx context.Context, tenant string) error {
	s.mu.Lock()
	w := &waiter{tenant: tenant, granted: make(chan struct{})}
	queued := 0
	for _, other := range s.queued {
		if other.tenant == tenant {
			queued++
		}
	}
	if queued >= maxQueued {
		s.mu.Unlock()
		return errQueueFull
	}
	s.queued = append(s.queued, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.queued, w); at >= 0 {
		s.queued = slices.Delete(s.queued, at, at+1)
		return context.Cause(ctx)
	}
	return nil // granted in the same moment
}

func (s *slots) release(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.used[tenant]--; s.used[tenant] == 0 {
		delete(s.used, tenant)
	}
	s.grant()
}

// grant gives free slots to the tenants that use the fewest.
func (s *slots) grant() {
	for s.all < s.total {
		next := -1
		for i, w := range s.queued {
			if s.used[w.tenant] < s.perTenant && (next < 0 || s.used[w.tenant] < s.used[s.queued[next].tenant]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.queued[next]
		s.queued = slices.Delete(s.queued, next, next+1)
		s.used[w.tenant]++
		s.all++
		close(w.granted)
	}
}
