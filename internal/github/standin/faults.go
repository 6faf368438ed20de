package standin

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FaultKind names what goes wrong.
type FaultKind string

// The faults. Each says which fields of [Fault] it reads besides Times and Percent.
const (
	faultHookDrop    FaultKind = "hook-drop"    // not sent, but listed as a failed delivery. Event, Action, Job
	faultHookVanish  FaultKind = "hook-vanish"  // neither sent nor listed. Event, Action, Job
	faultHookDelay   FaultKind = "hook-delay"   // sent Delay later. Event, Action, Job
	faultHookDouble  FaultKind = "hook-double"  // sent twice, same GUID. Event, Action, Job
	faultHookReorder FaultKind = "hook-reorder" // sent after the same job's next webhook. Event, Action, Job

	faultRESTStatus  FaultKind = "rest-status"  // answered with Status before it takes effect; 403 and 429 carry Retry-After: Delay. Route
	faultRESTLatency FaultKind = "rest-latency" // answered Delay later. Route
	faultRESTCut     FaultKind = "rest-cut"     // takes effect, but the connection is cut instead of answered. Route
	faultTokens      FaultKind = "token-expired"

	faultSession         FaultKind = "session-conflict" // creating a session answers 409. Runner
	faultAssignDifferent FaultKind = "assign-different" // a job avoids the runner that was minted for it
	faultBusyHidden      FaultKind = "busy-hidden"      // busy=false is shown for a busy runner, for Delay (default 1 min). Runner
	faultRemoveBusy      FaultKind = "remove-busy"      // removing a busy runner succeeds; its job runs on. Runner
)

// FaultKinds lists every kind.
func FaultKinds() []FaultKind {
	return []FaultKind{
		faultHookDrop, faultHookVanish, faultHookDelay, faultHookDouble, faultHookReorder,
		faultRESTStatus, faultRESTLatency, faultRESTCut, faultTokens,
		faultSession, faultAssignDifferent, faultBusyHidden, faultRemoveBusy,
	}
}

// Fault makes something go wrong on purpose. Empty selectors match everything.
type Fault struct {
	// ID is assigned when the fault is added.
	ID int64 `json:"id"`
	// Kind is one of [FaultKinds].
	Kind FaultKind `json:"kind"`
	// Times is how often it strikes; 0 means until it is removed.
	Times int `json:"times,omitempty"`
	// Percent is how likely it strikes when it could; 0 means always.
	Percent int `json:"percent,omitempty"`
	// Event and Action select webhooks: "workflow_job", "queued".
	Event  string `json:"event,omitempty"`
	Action string `json:"action,omitempty"`
	// Job selects by the job's name, a shell pattern.
	Job string `json:"job,omitempty"`
	// Route selects REST and runner-protocol calls by a part of "METHOD /route/{pattern}": "generate-jitconfig".
	Route string `json:"route,omitempty"`
	// Runner selects by the runner's name, a shell pattern.
	Runner string `json:"runner,omitempty"`
	// Status is the answer of rest-status.
	Status int `json:"status,omitempty"`
	// Delay is a duration such as "100ms".
	Delay Duration `json:"delay,omitempty"`
	// Hits counts how often it struck.
	Hits int `json:"hits"`
}

// Duration is a time.Duration that JSON writes as "1m30s".
type Duration time.Duration

// MarshalText writes the duration as time.ParseDuration reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write it like 100ms or 2m", text)
	}
	*d = Duration(parsed)
	return nil
}

func (f Fault) delayOr(fallback time.Duration) time.Duration {
	if f.Delay > 0 {
		return time.Duration(f.Delay)
	}
	return fallback
}

func matchesPattern(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func (f Fault) matchesRunner(name string) bool { return matchesPattern(f.Runner, name) }

func (f Fault) matchesHook(d *delivery) bool {
	return (f.Event == "" || f.Event == d.Event) && (f.Action == "" || f.Action == d.Action) && matchesPattern(f.Job, d.jobName)
}

func (f Fault) matchesRoute(route string) bool {
	return f.Route == "" || strings.Contains(route, f.Route)
}

func (f Fault) validate() error {
	if !slices.Contains(FaultKinds(), f.Kind) {
		names := make([]string, 0, len(FaultKinds()))
		for _, kind := range FaultKinds() {
			names = append(names, string(kind))
		}
		return fmt.Errorf("there is no fault %q: use one of %s", f.Kind, strings.Join(names, ", "))
	}
	for _, pattern := range []string{f.Job, f.Runner} {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: use * and ? as in file names", pattern)
		}
	}
	switch {
	case f.Kind == faultRESTStatus && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("rest-status needs a status from 400 to 599, not %d", f.Status)
	case (f.Kind == faultRESTLatency || f.Kind == faultHookDelay) && f.Delay <= 0:
		return fmt.Errorf("%s needs a delay, such as \"100ms\"", f.Kind)
	case f.Times < 0 || f.Percent < 0 || f.Percent > 100 || f.Delay < 0:
		return fmt.Errorf("times and delay must not be negative, and percent must be from 0 to 100")
	}
	return nil
}

// faultBook holds the faults in force. Safe for concurrent use; its lock is the innermost.
type faultBook struct {
	mu     sync.Mutex
	pick   func(int) int
	nextID int64
	faults []*Fault
}

func (b *faultBook) add(f Fault) (Fault, error) {
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextID++
	f.ID, f.Hits = b.nextID, 0
	b.faults = append(b.faults, &f)
	return f, nil
}

// remove takes one fault away, or all of them with id 0. It reports whether there was any.
func (b *faultBook) remove(id int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.faults)
	b.faults = slices.DeleteFunc(b.faults, func(f *Fault) bool { return id == 0 || f.ID == id })
	return len(b.faults) < before
}

func (b *faultBook) list() []Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Fault, 0, len(b.faults))
	for _, f := range b.faults {
		out = append(out, *f)
	}
	return out
}

// active reports whether a fault of the kind is in force, without using it up.
func (b *faultBook) active(kind FaultKind, match func(Fault) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.faults, func(f *Fault) bool {
		return f.Kind == kind && f.armed() && (match == nil || match(*f))
	})
}

// take returns a fault of the kind that strikes now, and counts it.
func (b *faultBook) take(kind FaultKind, match func(Fault) bool) (Fault, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		if f.Kind != kind || !f.armed() || (match != nil && !match(*f)) {
			continue
		}
		if f.Percent > 0 && b.pick(100) >= f.Percent {
			continue
		}
		f.Hits++
		return *f, true
	}
	return Fault{}, false
}

func (f *Fault) armed() bool { return f.Times == 0 || f.Hits < f.Times }

func retryAfter(f Fault) string {
	return strconv.Itoa(max(1, int(time.Duration(f.Delay).Seconds())))
}
