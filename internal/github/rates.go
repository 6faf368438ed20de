package github

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Rate-limit resources, as GitHub names them.
const (
	ResourceCore         = "core"
	ResourceRegistration = "actions_runner_registration"
	// ResourceSecondary is not a bucket of GitHub's but its word for "too much at once", for a whole installation.
	ResourceSecondary = "secondary"
)

const (
	// unknownWait applies when GitHub refuses and does not say for how long: its documentation asks for a minute.
	unknownWait = time.Minute
	// longestWait bounds nonsense in a header. A primary window is an hour.
	longestWait = 2 * time.Hour
	// sameWindow: reset times of one window differ by a second between answers.
	sameWindow = 2 * time.Second
)

// class tells requests apart by what they count against.
type class int

const (
	classRead   class = iota // of one thing, for a caller that waits: control reads too
	classMint                // of a registration
	classRemove              // of a registration
	classSweep               // of a list, in search of what was missed
	classToken               // to register with
)

// bucket is the class that counts in the same of GitHub's buckets.
func (c class) bucket() class {
	if c == classMint || c == classToken {
		return c
	}
	return classRead
}

// rates is what GitHub last said of one installation's limits. Which bucket a request counts against is learnt from
// the answers, because documentation and servers disagree about it.
type rates struct {
	mu       sync.Mutex
	resource map[class]string
	state    map[string]fleet.RateState
	blocked  time.Time // secondary limit
}

func newRates() *rates {
	return &rates{
		resource: map[class]string{classRead: ResourceCore, classMint: ResourceRegistration, classToken: ResourceRegistration},
		state:    map[string]fleet.RateState{},
	}
}

// gate refuses a request that is known to be refused.
func (r *rates) gate(of class, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.blocked) {
		return &fleet.RateLimitedError{Resource: ResourceSecondary, Until: r.blocked}
	}
	state, known := r.state[r.resource[of.bucket()]]
	least := 0
	if of == classSweep {
		least = state.Limit / 10 // the last tenth of a window is for removals and interactive reads
	}
	if known && state.Remaining <= least && now.Before(state.Reset) {
		return &fleet.RateLimitedError{Resource: state.Resource, Until: state.Reset}
	}
	return nil
}

// observe remembers the headers of an answer. Answers overtake each other, so within one window the least counts.
func (r *rates) observe(of class, header http.Header, now time.Time) {
	remaining, err := strconv.Atoi(header.Get("X-RateLimit-Remaining"))
	if err != nil || remaining < 0 {
		return
	}
	limit, _ := strconv.Atoi(header.Get("X-RateLimit-Limit"))
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := header.Get("X-RateLimit-Resource")
	if resource == "" {
		resource = r.resource[of.bucket()]
	}
	r.resource[of.bucket()] = resource
	next := fleet.RateState{Resource: resource, Limit: limit, Remaining: remaining, Reset: resetTime(header, now)}
	last, known := r.state[resource]
	switch {
	case !known || next.Reset.Sub(last.Reset) > sameWindow:
	case last.Reset.Sub(next.Reset) > sameWindow && now.Before(last.Reset):
		return // an answer from the window before
	default:
		next.Remaining = min(next.Remaining, last.Remaining)
	}
	r.state[resource] = next
}

// refuse remembers a refusal and says until when.
func (r *rates) refuse(of class, header http.Header, now time.Time) *fleet.RateLimitedError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if header.Get("X-RateLimit-Remaining") == "0" {
		resource := header.Get("X-RateLimit-Resource")
		if resource == "" {
			resource = r.resource[of.bucket()]
		}
		return &fleet.RateLimitedError{Resource: resource, Until: resetTime(header, now)}
	}
	until := now.Add(unknownWait)
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && seconds >= 0 {
		until = now.Add(min(time.Duration(min(seconds, int(longestWait/time.Second)))*time.Second, longestWait))
	}
	if until.After(r.blocked) {
		r.blocked = until
	}
	return &fleet.RateLimitedError{Resource: ResourceSecondary, Until: until}
}

// resetTime is when the window ends: never in the past, never beyond reason.
func resetTime(header http.Header, now time.Time) time.Time {
	seconds, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil {
		return now.Add(unknownWait)
	}
	reset := time.Unix(seconds, 0)
	if latest := now.Add(longestWait); reset.After(latest) {
		return latest
	}
	if earliest := now.Add(time.Second); reset.Before(earliest) {
		return earliest
	}
	return reset
}

func (r *rates) get(resource string) (fleet.RateState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, ok := r.state[resource]
	return state, ok
}

func (r *rates) of(class class) (fleet.RateState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, ok := r.state[r.resource[class.bucket()]]
	return state, ok
}

func (r *rates) all() []fleet.RateState {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]fleet.RateState, 0, len(r.state))
	for _, state := range r.state {
		list = append(list, state)
	}
	return list
}
