package standin_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stepClock is a clock with timers, both of which tests move.
type stepClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*stepTimer
}

type stepTimer struct {
	at   time.Time
	wait time.Duration
	ring chan time.Time
}

func newStepClock() *stepClock { return &stepClock{now: time.Now()} }

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stepClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := &stepTimer{at: c.now.Add(d), wait: d, ring: make(chan time.Time, 1)}
	if d <= 0 {
		timer.ring <- c.now
	} else {
		c.timers = append(c.timers, timer)
	}
	return timer.ring
}

// moveTo moves the clock forward, and rings what is due.
func (c *stepClock) moveTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.now) {
		c.now = at
	}
	var rest []*stepTimer
	for _, timer := range c.timers {
		if timer.at.After(c.now) {
			rest = append(rest, timer)
			continue
		}
		timer.ring <- c.now
	}
	c.timers = rest
}

// awaitTimers waits until that many timers of that length are pending.
func (c *stepClock) awaitTimers(t testing.TB, count int, wait time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool { return c.pending(wait) >= count }, waitFor, look, "%d timers of %s", count, wait)
}

func (c *stepClock) pending(wait time.Duration) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, timer := range c.timers {
		if timer.wait == wait {
			n++
		}
	}
	return n
}
