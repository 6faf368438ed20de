package tart

import (
	"context"
	"sync"
	"time"
)

// MaxSlots is how many macOS virtual machines Apple's licence, and its kernel, allow on one Mac at a time.
const MaxSlots = 2

// ledger counts the slots of the host (NODE-5). It is a value without a clock: the caller brings the time.
type ledger struct {
	total int
	// held are pods whose machine runs or is about to.
	held map[string]bool
	// starting are those of them whose machine has not stayed up yet: its processes may not all be there to be counted.
	starting map[string]bool
	// foreign is how many machines run on the host that are not ours, of any user or program.
	foreign int
	// cooling are slots that Tart refused although they were free, and until when they are not tried again.
	cooling []time.Time
	// refusals in a row, for how long the next one cools down.
	refusals int
}

// The cooling down of a ghost slot: it doubles from refusal to refusal.
const longestCooldown = 2 * time.Hour

// ghosts is how many slots cool down.
func (l *ledger) ghosts(now time.Time) int {
	n := 0
	for _, until := range l.cooling {
		if now.Before(until) {
			n++
		}
	}
	return n
}

// usable is how many slots pods of ours may fill, held ones included.
func (l *ledger) usable(now time.Time) int {
	return max(0, l.total-l.ghosts(now)-l.foreign)
}

// offered is the number of slots in the node's allocatable resources: those that are in use, and, on a host that can start machines now,
// those that can be filled. A host that can start none thus withdraws from scheduling (NODE-9) without seeming to have no room for its
// running machines: a pool that counted no place for a running machine would be scaled down.
func (l *ledger) offered(now time.Time, healthy bool) int {
	if !healthy {
		return len(l.held)
	}
	return max(len(l.held), l.usable(now))
}

// take fills a slot, unless none is free. A pod that has one keeps it.
func (l *ledger) take(pod string, now time.Time) bool {
	if l.held[pod] {
		return true
	}
	if len(l.held) >= l.usable(now) {
		return false
	}
	l.held[pod] = true
	if l.starting == nil {
		l.starting = map[string]bool{}
	}
	l.starting[pod] = true
	return true
}

// recount takes a new count of foreign machines: unnamed run that no record of ours names, and all run on the host, of any user. Half a
// count frees no slot, nor does one while a machine of ours starts: it may stand for a foreign one in all.
func (l *ledger) recount(unnamed, all int, complete bool) {
	foreign := max(unnamed, all-len(l.held))
	if !complete || len(l.starting) > 0 {
		foreign = max(foreign, l.foreign)
	}
	l.foreign = foreign
}

// adopt counts a machine that runs already, room or not.
func (l *ledger) adopt(pod string) { l.held[pod] = true }

// release frees a slot.
func (l *ledger) release(pod string) {
	delete(l.held, pod)
	delete(l.starting, pod)
}

// stayed notes that a pod's machine has come up.
func (l *ledger) stayed(pod string) {
	l.refusals = 0
	delete(l.starting, pod)
}

// refused notes that Tart had no room although we counted a free slot: a ghost occupies it (Tart 4.4).
func (l *ledger) refused(pod string, now time.Time, cooldown time.Duration) {
	l.release(pod)
	pause := min(cooldown<<min(l.refusals, 10), longestCooldown)
	l.refusals++
	var cooling []time.Time
	for _, until := range l.cooling {
		if now.Before(until) {
			cooling = append(cooling, until)
		}
	}
	// No more slots than there are can be occupied by ghosts.
	if len(cooling) < l.total {
		cooling = append(cooling, now.Add(pause))
	}
	l.cooling = cooling
}

// slots is the ledger, shared and waited for.
type slots struct {
	mu      sync.Mutex
	ledger  ledger
	changed chan struct{} // closed when something may have become free
}

func newSlots(total int) *slots {
	return &slots{ledger: ledger{total: total, held: map[string]bool{}}, changed: make(chan struct{})}
}

// change alters the ledger and wakes all waiting goroutines.
func (s *slots) change(f func(*ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.ledger)
	close(s.changed)
	s.changed = make(chan struct{})
}

// read runs f with the ledger locked.
func (s *slots) read(f func(*ledger)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.ledger)
}

// take waits for a slot until patience is over or ctx ends; false then.
func (s *slots) take(ctx context.Context, pod string, now func() time.Time, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		s.mu.Lock()
		ok, changed := s.ledger.take(pod, now()), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
