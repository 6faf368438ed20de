package dispatch

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// matcher pairs the waiting polls of one pool at this replica with queued jobs, longest wait first, a batch
// per transaction. Its cost does not grow with the number of polls that get no job.
type matcher struct {
	d       *Dispatcher
	pool    PoolRef
	stopped <-chan struct{} // the replica stops
	wake    chan struct{}

	mu      sync.Mutex
	waiting *list.List // of *waiter, longest wait first
	byPod   map[string]*waiter
	closed  bool // its pool is gone, and so is its goroutine: no poll joins it
}

// waiter is one waiting poll. It is waiting until the matcher takes it into a batch; then only the matcher may answer.
type waiter struct {
	poll  Poll
	entry *list.Element // nil while taken
	out   chan *Claim   // a claim, or nil: look again. Capacity 1: the matcher never blocks on a poll that has left
}

// matcherOf returns the pool's matcher, starting it at the pool's first poll; nil once the replica stops.
func (d *Dispatcher) matcherOf(pool PoolRef) *matcher {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runCtx.Err() != nil {
		return nil
	}
	m, ok := d.matchers[pool]
	if !ok {
		ctx := d.runCtx
		m = &matcher{
			d: d, pool: pool, stopped: ctx.Done(), wake: make(chan struct{}, 1), waiting: list.New(),
			byPod: map[string]*waiter{},
		}
		d.matchers[pool] = m
		d.running.Go(func() { m.run(ctx) })
	}
	return m
}

func (m *matcher) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// outcome says why await returned without a claim.
type outcome int

const (
	holdOver   outcome = iota // the hold, the request or the replica ended: the poll must be answered now
	rowChanged                // ClaimChanged was called for the pod
	dismissed                 // the matcher or another request of the pod dropped the poll
)

// await holds the poll until it is matched or there is another outcome. A poll that was taken into a batch waits for that
// batch, however late: a claim must not be lost between the two. A channel of a timer gives its one value to one receiver, so
// after holdOver no later await would end with the hold.
func (m *matcher) await(poll Poll, done, changed <-chan struct{}, over <-chan time.Time) (*Claim, outcome) {
	w := m.join(poll)
	if w == nil {
		return nil, dismissed
	}
	why := holdOver
	select {
	case claim := <-w.out:
		return claim, dismissed
	case <-changed:
		why = rowChanged
	case <-done:
	case <-over:
	case <-m.stopped:
	}
	if m.leave(w) {
		return nil, why
	}
	return <-w.out, why
}

// join returns nil when the matcher has ended.
func (m *matcher) join(poll Poll) *waiter {
	w := &waiter{poll: poll, out: make(chan *Claim, 1)}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	old, ok := m.byPod[poll.PodUID]
	if ok && poll.Sequence != 0 && poll.Sequence < old.poll.Sequence { // this one's connection is dead, not the other's
		m.mu.Unlock()
		w.out <- nil
		return w
	}
	if ok && old.entry != nil {
		// The same pod polls again: its former connection is dead, whatever TCP reports.
		m.waiting.Remove(old.entry)
		old.entry = nil
		old.out <- nil
	}
	w.entry = m.waiting.PushBack(w)
	m.byPod[poll.PodUID] = w
	m.mu.Unlock()
	m.wakeUp()
	return w
}

// leave takes a waiter out; false when the matcher holds it and will answer.
func (m *matcher) leave(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byPod[w.poll.PodUID] == w {
		delete(m.byPod, w.poll.PodUID)
	}
	if len(m.byPod) == 0 {
		defer m.wakeUp() // the last poll of a pool that is gone: see stopIfPoolGone
	}
	if w.entry == nil {
		return false
	}
	m.waiting.Remove(w.entry)
	w.entry = nil
	return true
}

// stopIfPoolGone closes the matcher if its pool is gone and no poll waits for it, and reports whether it did: then its
// goroutine returns. A pool that is made again gets another matcher.
func (m *matcher) stopIfPoolGone() bool {
	if _, ok := m.d.opt.Cluster.Pool(m.pool); ok {
		return false
	}
	m.d.mu.Lock() // then m.mu: always in this order
	defer m.d.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.byPod) > 0 || m.waiting.Len() > 0 {
		return false
	}
	m.closed = true
	delete(m.d.matchers, m.pool)
	return true
}

func (m *matcher) take(n int) []*waiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	var taken []*waiter
	for len(taken) < n && m.waiting.Len() > 0 {
		front := m.waiting.Front()
		w := m.waiting.Remove(front).(*waiter) //nolint:forcetypeassert // only join fills the list
		w.entry = nil
		taken = append(taken, w)
	}
	return taken
}

// giveBack puts waiters that got nothing back in front, in their order.
func (m *matcher) giveBack(ws []*waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(ws) - 1; i >= 0; i-- {
		w := ws[i]
		if m.byPod[w.poll.PodUID] != w { // it left, or polled again in between
			w.out <- nil
			continue
		}
		w.entry = m.waiting.PushFront(w)
	}
}

// run matches whenever something may have changed: a job, a poll, a pool, room, a mint slot, the end of a back-off.
func (m *matcher) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		wake := m.wake
		wait, ok, failed := m.match(ctx)
		switch {
		case ok:
			again = m.d.opt.After(wait)
		case m.stopIfPoolGone():
			return
		}
		if failed {
			wake = nil // what batches that fail give back wakes other pools, whose batches fail too: there would be no pause
		}
		select {
		case <-ctx.Done():
			m.dismiss()
			return
		case <-wake:
		case <-again:
		}
	}
}

// dismiss ends every waiting poll when the replica stops.
func (m *matcher) dismiss() {
	for _, w := range m.take(int(^uint(0) >> 1)) {
		w.out <- nil
	}
}

// match runs batches until there is no work or no poll left. It reports when to read again without a notification:
// after a failed transaction, and then not before, or when an account's back-off ends.
func (m *matcher) match(ctx context.Context) (wait time.Duration, again, failed bool) {
	for {
		until := m.excludedFor()
		more, err := m.round(ctx)
		if errors.Is(err, fleet.ErrLedgerFrozen) { // CLAIM-17: the end of the hold wakes all matchers
			m.d.opt.Gate.Suspect()
			return time.Second, true, false
		}
		if err != nil {
			if ctx.Err() == nil {
				m.d.opt.Log.ErrorContext(ctx, "matching", "pool", m.pool.Name, "error", err)
				m.d.metrics.matchErrors.Inc()
			}
			return time.Second, true, true
		}
		if !more {
			// The batch may have found an account's mint slots or rate limit used up.
			if after := m.excludedFor(); until == 0 || after > 0 && after < until {
				until = after
			}
			return until, until > 0, false
		}
	}
}

// excludedFor is how long until an account may have runners that has none now; 0: there is no such account.
func (m *matcher) excludedFor() time.Duration {
	pool, ok := m.d.opt.Cluster.Pool(m.pool)
	if !ok {
		return 0
	}
	_, wait := m.d.excluded(pool)
	return wait
}

// roundTimeout bounds one batch: a database that does not answer must not keep the polls that were taken.
const roundTimeout = 15 * time.Second

// round matches one batch and reports whether another one may find more.
func (m *matcher) round(ctx context.Context) (bool, error) {
	if _, frozen := m.d.Frozen(); frozen {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	routing, err := m.d.routingNow(ctx)
	if err != nil {
		return false, err
	}
	pool, ok := m.d.opt.Cluster.Pool(m.pool)
	keys := routing.Served[m.pool]
	if !ok || pool.Terminating || pool.Paused || len(keys) == 0 {
		return false, nil
	}
	runtime.Gosched() // polls that are about to join go with this batch, and do not wait for its end
	taken := m.take(m.d.opt.MaxBatch)
	if len(taken) == 0 {
		return false, nil
	}
	excluded, _ := m.d.excluded(pool)
	began := m.d.opt.Tracer.Now()
	result, err := m.d.opt.Store.ClaimBatch(ctx, m.batch(pool, keys, taken, excluded))
	if err != nil {
		m.giveBack(taken)
		return false, err
	}
	m.d.traceClaims(result.Claims, began)
	m.deliver(taken, result)
	return result.More, nil
}

func (m *matcher) batch(pool Pool, keys []string, taken []*waiter, excluded []int64) Batch {
	polls := make([]Poll, len(taken))
	for i, w := range taken {
		polls[i] = w.poll
	}
	return Batch{
		Pool: pool, LabelKeys: keys, Polls: polls, Excluded: excluded,
		Reserve: m.d.reserve(pool), Return: m.unused,
		Lease: 2 * m.d.opt.MintTimeout, Now: m.d.opt.Now(),
	}
}

// unused gives slots back that the batch made no claim with. Other batches may need them. Reading again at once would only
// reserve and return them, for as long as another transaction holds the jobs.
func (m *matcher) unused(accountID int64, slots int) {
	if m.d.mintSlots.unused(accountID, slots) {
		m.d.wakeOthers(m)
	}
}

func (m *matcher) deliver(taken []*waiter, result BatchResult) {
	claims := make(map[string]*Claim, len(result.Claims))
	for i := range result.Claims {
		claims[result.Claims[i].PodUID] = &result.Claims[i]
	}
	elsewhere := make(map[string]bool, len(result.Taken))
	for _, uid := range result.Taken {
		elsewhere[uid] = true
	}
	var rest []*waiter
	for _, w := range taken {
		claim, won := claims[w.poll.PodUID]
		if !won && !elsewhere[w.poll.PodUID] {
			rest = append(rest, w)
			continue
		}
		m.mu.Lock()
		if m.byPod[w.poll.PodUID] == w {
			delete(m.byPod, w.poll.PodUID)
		}
		m.mu.Unlock()
		w.out <- claim
	}
	m.giveBack(rest)
}
