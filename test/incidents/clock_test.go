package incidents

import (
	"sync"
	"time"
)

// clock is the real one, and can be put forward: waiters for a time that has passed then are woken at once. So what takes
// five minutes elsewhere takes none here, and what speaks HTTP does not notice.
type clock struct {
	mu      sync.Mutex
	ahead   time.Duration
	waiting map[*alarm]struct{}
}

type alarm struct {
	at    time.Time
	ring  chan time.Time
	timer *time.Timer
}

func newClock() *clock { return &clock{waiting: map[*alarm]struct{}{}} }

// Now is the time.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// After is time.After by this clock.
func (c *clock) After(d time.Duration) <-chan time.Time {
	a := &alarm{ring: make(chan time.Time, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.at = time.Now().Add(c.ahead + d)
	c.waiting[a] = struct{}{}
	a.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ringLocked(a)
	})
	return a.ring
}

func (c *clock) ringLocked(a *alarm) {
	if _, still := c.waiting[a]; still {
		delete(c.waiting, a)
		a.timer.Stop()
		a.ring <- time.Now().Add(c.ahead)
	}
}

// Advance puts the clock forward.
func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	now := time.Now().Add(c.ahead)
	for a := range c.waiting {
		if !a.at.After(now) {
			c.ringLocked(a)
		}
	}
}
