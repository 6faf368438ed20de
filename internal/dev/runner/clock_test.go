package runner

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is time that moves only when a test moves it.
type clock struct {
	mu     sync.Mutex
	cond   *sync.Cond
	now    time.Time
	timers []*timer
}

type timer struct {
	length time.Duration
	at     time.Time
	fire   chan time.Time
}

func newClock() *clock {
	c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{d, c.now.Add(d), make(chan time.Time, 1)}
	c.timers = append(c.timers, t)
	c.cond.Broadcast()
	return t.fire
}

// fire waits until a timer of between from and to exists, moves the time there, and returns its length. Timers of
// other lengths stay, so that one thing happens at a time.
func (c *clock) fire(t testing.TB, from, to time.Duration) time.Duration {
	t.Helper()
	giveUp := time.AfterFunc(20*time.Second, func() { c.cond.Broadcast() })
	defer giveUp.Stop()
	began := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for i, x := range c.timers {
			if x.length >= from && x.length <= to {
				c.timers = append(c.timers[:i], c.timers[i+1:]...)
				if x.at.After(c.now) {
					c.now = x.at
				}
				x.fire <- c.now
				return x.length
			}
		}
		if time.Since(began) > 19*time.Second {
			require.FailNow(t, fmt.Sprintf("no timer is pending from %s to %s", from, to))
		}
		c.cond.Wait() // bounded: giveUp wakes it
	}
}
