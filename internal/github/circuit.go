package github

import (
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// ResourceCircuit is no limit of GitHub's but ours: an installation that fails is left alone for a while.
const ResourceCircuit = "circuit"

const (
	circuitTrips   = 5 // failures in a row: one answer that was lost is no outage
	circuitFirst   = time.Second
	circuitLongest = 30 * time.Second
)

// circuit stops the calls of an installation that fails, and sends one probe at a time to see whether it is over (CLAIM-11). Others are not
// affected. A failure is a call with an unknown outcome (5xx, timeouts, broken connections) or one that gets no token. A 403 or 404 of a
// single call is none: the control read that gives it its meaning has to follow (EXCL-6).
type circuit struct {
	mu       sync.Mutex
	failures int
	until    time.Time
	probing  bool
}

type result int

const (
	resultWorked result = iota
	resultFailed
	resultUnknown // the caller cancelled: this says nothing about GitHub
)

// enter lets a call through, or refuses it. A probe must always be left with leave.
func (c *circuit) enter(now time.Time) (probe bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failures < circuitTrips:
		return false, nil
	case c.probing || now.Before(c.until):
		until := c.until
		if !until.After(now) {
			until = now.Add(circuitFirst) // a probe is under way
		}
		return false, &fleet.RateLimitedError{Resource: ResourceCircuit, Until: until}
	}
	c.probing = true
	return true, nil
}

func (c *circuit) leave(probe bool, r result, now time.Time, jitter float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if probe {
		c.probing = false
	}
	switch {
	case r == resultWorked:
		c.failures, c.until = 0, time.Time{}
	case r == resultFailed && (probe || c.failures < circuitTrips): // a request from before the opening no longer counts
		c.failures++
		if over := c.failures - circuitTrips; over >= 0 {
			wait := min(circuitLongest, circuitFirst<<min(over, 10))
			c.until = now.Add(wait/2 + time.Duration(jitter*float64(wait/2)))
		}
	}
}
