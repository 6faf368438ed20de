package github

import (
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// ResourcePace is our own count of what GitHub counts without saying: points a minute, its secondary limit.
const ResourcePace = "points_per_minute"

// DefaultPoints is GitHub's secondary limit of points a minute for REST calls. A server of one's own has none.
const DefaultPoints = 900

// The cost of a call, and the share of the points that its class may use: the rest is for higher classes. Removals and control reads free
// runners and budgets, and are never held back; sweeps only look for lost events.
const (
	readPoints  = 1
	writePoints = 5
)

func (c class) points() int {
	switch c {
	case classMint, classRemove, classToken:
		return writePoints
	default:
		return readPoints
	}
}

func (c class) share() float64 {
	switch c {
	case classMint, classToken:
		return 0.9
	case classSweep:
		return 0.5
	default:
		return 0 // never held back
	}
}

// pace counts the points that this replica has spent in an installation's name in the last minute. Replicas share the
// limit without talking: one that is refused for it halves what it allows itself, and takes it back by a tenth a minute.
type pace struct {
	most int // 0: no limit

	mu    sync.Mutex
	spent [60]int // by second
	at    int64   // the second that was written last
	cut   int     // what was allowed after the last cut; most when there was none
	cutAt time.Time
}

func newPace(most int) *pace { return &pace{most: most, cut: most} }

func (p *pace) allowed(now time.Time) int {
	grown := float64(p.most) / 10 * now.Sub(p.cutAt).Minutes()
	return min(p.most, p.cut+int(min(grown, float64(p.most))))
}

// advance forgets seconds that are more than a minute ago.
func (p *pace) advance(now time.Time) {
	second := now.Unix()
	for range min(max(0, second-p.at), int64(len(p.spent))) {
		p.at++
		p.spent[p.at%int64(len(p.spent))] = 0
	}
	p.at = max(p.at, second)
}

func (p *pace) sum() (n int) {
	for _, spent := range p.spent {
		n += spent
	}
	return n
}

// gate refuses a call for which there are no points left.
func (p *pace) gate(of class, now time.Time) error {
	if p.most == 0 || of.share() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	if p.sum()+of.points() <= int(of.share()*float64(p.allowed(now))) {
		return nil
	}
	return &fleet.RateLimitedError{Resource: ResourcePace, Until: p.free(of, now)}
}

// spend counts a call that is sent.
func (p *pace) spend(of class, now time.Time) {
	if p.most == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.spent[p.at%int64(len(p.spent))] += of.points()
}

// refused: GitHub says that it is too much, so that others spend from the same limit.
func (p *pace) refused(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == 0 || now.Sub(p.cutAt) < time.Second { // those that were under way together are refused together
		return
	}
	p.cut, p.cutAt = max(p.most/20, p.allowed(now)/2), now
}

// free is when enough seconds have passed for one more call of that class.
func (p *pace) free(of class, now time.Time) time.Time {
	left, most := p.sum(), int(of.share()*float64(p.allowed(now)))
	for age := int64(len(p.spent)) - 1; age >= 0; age-- {
		left -= p.spent[(p.at-age+int64(len(p.spent)))%int64(len(p.spent))]
		if left+of.points() <= most {
			return now.Add(time.Duration(int64(len(p.spent))-age) * time.Second)
		}
	}
	return now.Add(time.Minute)
}

// mints is how many registrations may be asked for now.
func (p *pace) mints(now time.Time) (fleet.RateState, bool) {
	if p.most == 0 {
		return fleet.RateState{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	budget := int(classMint.share() * float64(p.allowed(now)))
	state := fleet.RateState{
		Resource: ResourcePace, Limit: budget / writePoints, Remaining: max(0, budget-p.sum()) / writePoints,
		Reset: now.Add(time.Minute),
	}
	if state.Remaining == 0 {
		state.Reset = p.free(classMint, now)
	}
	return state, true
}
