package runnerowner

import (
	"context"
	"sync"
)

// crew does the work of one owner beside its passes: a few tasks at once, in the order in which they came. Each owner has its own,
// so that one whose GitHub hangs delays no other. Nothing is queued twice, and nothing is repeated: a pass that still finds a task
// to be done gives it again.
type crew struct {
	width int
	ctx   context.Context // ends with the manager
	wait  *sync.WaitGroup

	mu    sync.Mutex
	queue []task
	at    map[string]bool // what is queued or under way
	busy  int
}

// task is one thing to do for one member. What is the same for two tasks is key.
type task struct {
	key string
	do  func(ctx context.Context)
}

// give has a task done; false when it is queued or under way already, or nothing is begun any more.
func (c *crew) give(t task) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[t.key] || c.ctx.Err() != nil {
		return false
	}
	if c.at == nil {
		c.at = map[string]bool{}
	}
	c.at[t.key] = true
	c.queue = append(c.queue, t)
	if c.busy < c.width {
		c.busy++
		c.wait.Go(c.work)
	}
	return true
}

func (c *crew) work() {
	for {
		t, more := c.next()
		if !more {
			return
		}
		if c.ctx.Err() == nil {
			t.do(c.ctx)
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
