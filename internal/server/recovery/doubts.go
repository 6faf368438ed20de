package recovery

import (
	"sync"
	"time"
)

// doubts remembers what GitHub could not answer. It is not asked about again at every pass, or the unanswerable ones
// would use up the requests for the others (RECV-5). It counts as doubtful until it is resolved.
type doubts struct {
	now      func() time.Time
	patience time.Duration

	mu sync.Mutex
	of map[string]doubted
}

type doubted struct {
	times int
	ask   time.Time // not before
	until time.Time // counted, unless it is seen again by then
}

// The first doubt is asked about again at the next pass, and then less and less often, up to once in the patience.
const firstDoubt = 6

func newDoubts(now func() time.Time, patience time.Duration) *doubts {
	return &doubts{now: now, patience: patience, of: map[string]doubted{}}
}

func (d *doubts) note(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	one := d.of[key]
	one.ask = now.Add(min(d.patience/firstDoubt<<min(one.times, 8), d.patience))
	one.until = one.ask.Add(d.patience)
	one.times++
	d.of[key] = one
}

func (d *doubts) clear(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, key)
}

// early: it is too early to ask again.
func (d *doubts) early(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now().Before(d.of[key].ask)
}

// count also forgets what was not seen again.
func (d *doubts) count() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	for key, one := range d.of {
		if !now.Before(one.until) {
			delete(d.of, key)
		}
	}
	return float64(len(d.of))
}
