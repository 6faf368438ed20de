package machost

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// crew makes attempts, a bounded number at once, each in a goroutine of its own. It is a Runnable of the manager, for the leader only: when
// leadership ends its attempts end too, and their results are dropped. It is safe for concurrent use.
type crew struct {
	bootstrapper Bootstrapper
	places       int
	now          func() time.Time
	// wake enqueues a host whose attempt has reached another step, or its end.
	wake    func(types.NamespacedName)
	started chan struct{} // closed when attempts may begin

	mu      sync.Mutex
	ctx     context.Context // of the leadership; nil before and after
	jobs    map[types.NamespacedName]*job
	working sync.WaitGroup
}

// job is one attempt, from its start until its result is recorded.
type job struct {
	UID               types.UID
	Wanted            string
	Account, Identity string // see wanted
	scrub             scrubber
	cancel            context.CancelFunc

	mu     sync.Mutex
	began  time.Time
	ended  time.Time
	steps  []stepView // in the order of their first event
	result *Result    // nil while it runs
}

// stepView is the last event of a step. All text in it is scrubbed.
type stepView struct {
	Name    string
	Phase   machost.Phase
	Message string
}

func newCrew(b Bootstrapper, places int, now func() time.Time, wake func(types.NamespacedName)) *crew {
	return &crew{bootstrapper: b, places: places, now: now, wake: wake, started: make(chan struct{}), jobs: map[types.NamespacedName]*job{}}
}

// Start implements manager.Runnable: it returns when the last attempt has ended, after ctx.
func (c *crew) Start(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	close(c.started)
	<-ctx.Done()
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.working.Wait()
	return nil
}

// room reports whether another attempt may begin.
func (c *crew) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx != nil && c.running() < c.places
}

func (c *crew) running() int {
	n := 0
	for _, j := range c.jobs {
		if !j.over() {
			n++
		}
	}
	return n
}

// begin begins an attempt, if there is room and none for the host.
func (c *crew) begin(key types.NamespacedName, uid types.UID, w wanted) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil || c.jobs[key] != nil || c.running() >= c.places {
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	request := w.Request
	j := &job{UID: uid, Wanted: w.Hash, Account: w.Account, Identity: w.Identity, scrub: newScrubber(request), cancel: cancel, began: c.now()}
	request.Events = func(e machost.Event) {
		if j.see(e) {
			c.wake(key)
		}
	}
	c.jobs[key] = j
	c.working.Go(func() {
		defer cancel()
		result := c.bootstrapper.Bootstrap(ctx, request)
		if ctx.Err() != nil && result.Outcome != OutcomeSucceeded {
			// Its host is gone, or this controller is no longer the leader. The memory from its start stands.
			c.forget(key, j)
			c.wake(key)
			return
		}
		j.end(result, c.now())
		c.wake(key)
	})
	return true
}

// of is the host's attempt; nil without one.
func (c *crew) of(key types.NamespacedName) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[key]
}

// forget takes an attempt that has ended off the books.
func (c *crew) forget(key types.NamespacedName, j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[key] == j {
		delete(c.jobs, key)
	}
}

// abandon ends an attempt whose host is gone. Its place is taken until it has ended.
func (c *crew) abandon(key types.NamespacedName, j *job) {
	j.cancel()
	if j.over() {
		c.forget(key, j)
	}
}

// atWork is how many attempts are under way.
func (c *crew) atWork() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running()
}

func (j *job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.result != nil
}

func (j *job) end(result Result, now time.Time) {
	if result.Err != nil {
		result.Err = j.scrub.error(result.Err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.result, j.ended = &result, now
}

// view is what is known of the attempt: its steps, and its result once it has one.
func (j *job) view() (steps []stepView, result *Result, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]stepView(nil), j.steps...), j.result, j.ended.Sub(j.began)
}

// mostSteps bounds what a Mac can make this controller write down: the steps' names come from there.
const mostSteps = 40

// see records an event, and reports whether a person would want to know.
func (j *job) see(e machost.Event) bool {
	if !stepName.MatchString(e.Step) || j.scrub.text(e.Step) != e.Step {
		return false
	}
	seen := stepView{Name: e.Step, Phase: e.Phase, Message: j.scrub.text(messageOf(e))}
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.steps {
		if j.steps[i].Name == e.Step {
			changed := j.steps[i] != seen
			j.steps[i] = seen
			return changed
		}
	}
	if len(j.steps) >= mostSteps {
		return false
	}
	j.steps = append(j.steps, seen)
	return true
}
