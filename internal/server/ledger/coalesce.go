package ledger

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// coalescer turns calls that come at the same time into one statement: while one is under way the next ones gather,
// and go together when it is done. A lone call is not delayed. It starts no goroutine: one of the callers does the
// work of all. A statement that takes too long no longer holds up the others.
//
// A caller whose ctx ends stops waiting; what it asked for may still be done, as with any statement whose answer is
// lost.
type coalescer[A, R any] struct {
	run  func(ctx context.Context, batch []A) ([]R, error) // answers in the order of the batch
	most int                                               // statements at a time
	size int                                               // calls in one statement
	// patience is after how long a statement keeps its turn no longer: it may hang on a connection that is dead. Zero: it keeps it.
	patience time.Duration

	mu      sync.Mutex
	waiting []*coalesced[A, R]
	flying  int
	late    int // statements that have lost their turn
}

const (
	statementPatience = 250 * time.Millisecond
	mostLate          = 2
)

type coalesced[A, R any] struct {
	arg    A
	result R
	err    error
	lead   chan struct{} // closed: it is this caller's turn to run a batch
	done   chan struct{}
}

func (c *coalescer[A, R]) do(ctx context.Context, arg A) (R, error) {
	call := &coalesced[A, R]{arg: arg, lead: make(chan struct{}), done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, call)
	if c.flying < c.most {
		c.flying++
		close(call.lead)
	}
	c.mu.Unlock()
	select {
	case <-call.lead:
		c.fly(ctx, call)
	case <-call.done:
	case <-ctx.Done():
		c.abandon(ctx, call)
	}
	select {
	case <-call.done:
		return call.result, call.err
	default:
		var none R
		return none, ctx.Err()
	}
}

// statementTimeout bounds a statement that serves many callers.
const statementTimeout = 10 * time.Second

// fly runs one batch, led by call, and hands the turn on. The batch serves others too, so it does not end with the
// leader's ctx; waiting callers have contexts of their own.
//
// Callers come in herds, for many were served by one statement: the leader lets those that can run right now join first,
// or it would run alone and the herd wait for it. Where no other can run that takes no time.
func (c *coalescer[A, R]) fly(ctx context.Context, call *coalesced[A, R]) {
	runtime.Gosched()
	batch := c.take(call)
	args := make([]A, len(batch))
	for i, member := range batch {
		args[i] = member.arg
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	turn := c.takeTurn()
	results, err := c.run(detached, args)
	cancel()
	for i, member := range batch {
		if member.err = err; err == nil {
			member.result = results[i]
		}
		close(member.done)
	}
	turn.end()
}

// turn is a statement's right to keep others waiting.
type turn struct {
	pass     func() // mu is held
	mu       *sync.Mutex
	late     *int
	patience time.Duration
	timer    *time.Timer
	lost     bool // for it took too long
	ended    bool
}

func (c *coalescer[A, R]) takeTurn() *turn {
	t := &turn{pass: c.pass, mu: &c.mu, late: &c.late}
	if c.patience > 0 {
		t.mu.Lock() // lose reads it
		defer t.mu.Unlock()
		t.patience, t.timer = c.patience, time.AfterFunc(c.patience, t.lose)
	}
	return t
}

func (t *turn) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return
	case *t.late >= mostLate:
		t.timer.Reset(t.patience) // some of those may have ended by then
		return
	}
	t.lost = true
	*t.late++
	t.pass()
}

func (t *turn) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended = true; t.lost {
		*t.late--
		return
	}
	t.pass()
}

// take removes the next batch from the waiting calls: the leader, then the longest waiting.
func (c *coalescer[A, R]) take(leader *coalesced[A, R]) []*coalesced[A, R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := []*coalesced[A, R]{leader}
	var left []*coalesced[A, R]
	for _, member := range c.waiting {
		switch {
		case member == leader:
		case len(batch) < c.size && !member.leads():
			batch = append(batch, member)
		default:
			left = append(left, member)
		}
	}
	c.waiting = left
	return batch
}

func (m *coalesced[A, R]) leads() bool {
	select {
	case <-m.lead:
		return true
	default:
		return false
	}
}

// pass makes the longest waiting call the next leader, or gives the turn back. The caller holds the lock.
func (c *coalescer[A, R]) pass() {
	for _, member := range c.waiting {
		if !member.leads() {
			close(member.lead)
			return
		}
	}
	c.flying--
}

// abandon takes a call whose caller has given up out of the queue. If it was made the leader at that very moment it
// leads: others may be waiting behind it.
func (c *coalescer[A, R]) abandon(ctx context.Context, call *coalesced[A, R]) {
	c.mu.Lock()
	led := call.leads()
	if !led {
		for i, member := range c.waiting {
			if member == call {
				c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
				break
			}
		}
	}
	c.mu.Unlock()
	if led {
		c.fly(ctx, call)
	}
}
