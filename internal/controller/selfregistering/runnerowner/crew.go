package runnerowner

import (
	"context"
	"sync"
)

// shift is the time in which crews work. Once it is over no task is begun, however late a pass still adds one.
type shift struct {
	ctx    context.Context // of what is under way; ends with the shift
	cancel context.CancelFunc

	mu   sync.Mutex
	over bool
	wait sync.WaitGroup
}

func newShift() *shift {
	s := &shift{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// begin starts a worker; false when the shift is over.
func (s *shift) begin(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over { // nothing may be added to what end waits for
		return false
	}
	s.wait.Go(work)
	return true
}

// end ends the shift, and returns when all workers have stopped. It may be called twice.
func (s *shift) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel()
	s.wait.Wait()
}

// crew does the work of one owner beside its passes: a few tasks at once, in the order in which they came. Each owner has its own,
// so that one whose GitHub hangs delays no other. Nothing is queued twice, and nothing is repeated: a pass that still finds a task
// to be done gives it again.
type crew struct {
	width int
	shift *shift

	mu    sync.Mutex
	queue []task
	at    map[string]bool // what is queued or under way
	busy  int
}

// task is one thing to do for one member. Tasks with equal keys are the same.
type task struct {
	key string
	do  func(ctx context.Context)
}

// give adds a task; false when it is queued or running already, or the shift is over.
func (c *crew) give(t task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[t.key] || c.shift.ctx.Err() != nil {
		return false
	}
	if c.busy < c.width {
		if !c.shift.begin(c.work) { // who begins waits for the lock, and finds the task
			return false
		}
		c.busy++
	}
	if c.at == nil {
		c.at = map[string]bool{}
	}
	c.at[t.key] = true
	c.queue = append(c.queue, t)
	return true
}

func (c *crew) work() {
	for {
		t, more := c.next()
		if !more {
			return
		}
		if c.shift.ctx.Err() == nil {
			t.do(c.shift.ctx)
		}
	}
}

func (c *crew) next() (task, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.busy--
		return task{}, false
	}
	t := c.queue[0]
	c.queue = c.queue[1:]
	return t, true
}

// done lets the same task be given again. Each task calls it when what it has found out is recorded, before it starts a pass.
func (c *crew) done(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.at, key)
}
