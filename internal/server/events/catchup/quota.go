package catchup

import (
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// share is which part of what is left of a limit may be spent. A tenth of the limit is always left to others, mints
// above all.
type share struct {
	spread float64 // evenly until the limit is reset
	burst  float64 // and within any one minute
}

const (
	reserve = 0.1
	// withoutLimits is how many calls a minute are made where GitHub tells no limit, as an Enterprise Server by default.
	withoutLimits = 300
	// mostFree is how many calls a minute may turn out to cost nothing and be given back. They still count towards GitHub's
	// secondary limit, 900 points a minute, of which a mint takes 5.
	mostFree = 100
)

// perMinute is how many calls that is.
func (s share) perMinute(state fleet.RateState, known bool, now time.Time) float64 {
	if !known || state.Limit <= 0 {
		return withoutLimits
	}
	left, remaining := state.Reset.Sub(now), float64(state.Remaining)
	if left <= 0 { // the headers are about a window that has passed
		left, remaining = time.Hour, float64(state.Limit)
	}
	usable := remaining - reserve*float64(state.Limit)
	if usable <= 0 {
		return 0
	}
	return usable * min(1, s.burst+s.spread*min(1, time.Minute.Seconds()/left.Seconds()))
}

// quota hands out calls, to each installation its own. Safe for concurrent use.
type quota struct {
	share share
	now   func() time.Time
	state func(installationID int64) (fleet.RateState, bool)

	mu     sync.Mutex
	purses map[int64]*purse
}

// purse holds calls that were not made: at most a minute's.
type purse struct {
	calls float64
	at    time.Time // when calls was last right
	free  float64   // how many more may be given back
	since time.Time // when free was last right
}

// mostPurses bounds what is remembered; one that is forgotten starts full.
const mostPurses = 4096

func newQuota(s share, now func() time.Time, state func(int64) (fleet.RateState, bool)) *quota {
	return &quota{share: s, now: now, state: state, purses: map[int64]*purse{}}
}

// spend takes one call out of an installation's purse, or reports that there is none.
func (q *quota) spend(installationID int64) bool {
	state, known := q.state(installationID)
	now := q.now()
	rate := q.share.perMinute(state, known, now)
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.purses[installationID]
	if p == nil {
		if len(q.purses) >= mostPurses {
			clear(q.purses)
		}
		p = &purse{calls: max(rate, min(1, rate*60)), at: now, free: mostFree, since: now}
		q.purses[installationID] = p
	}
	if passed := now.Sub(p.at); passed > 0 {
		p.calls += rate * passed.Minutes()
		p.at = now
	}
	p.calls = min(p.calls, max(rate, min(1, rate*60))) // the latest headers count, also when they lower the quota
	if p.calls < 1 {
		return false
	}
	p.calls--
	return true
}

// refund gives a call back that turned out to cost nothing, up to mostFree a minute.
func (q *quota) refund(installationID int64) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.purses[installationID]
	if p == nil {
		return
	}
	if passed := now.Sub(p.since); passed > 0 {
		p.free = min(mostFree, p.free+mostFree*passed.Minutes())
		p.since = now
	}
	if p.free < 1 {
		return
	}
	p.free--
	p.calls++
}
