package run

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// awaitHealth waits for the services that have a check, in GitHub's order and words. There is no bound but the job's timeout, as there; a
// service that has ended is not waited for.
func (c *call) awaitHealth(ctx context.Context, p plan.Plan, s *session) error {
	ctx, cancel := context.WithCancel(ctx)
	var checkers sync.WaitGroup
	defer checkers.Wait()
	defer cancel()
	checked := make([]*checked, len(p.Containers))
	for i, container := range p.Containers {
		if container.Health == nil || container.Argv == nil {
			continue
		}
		checked[i] = newChecked(container, time.Now())
		guard := c.Guard(container.Container)
		checkers.Go(func() { checked[i].run(ctx, guard) })
	}
	failed := false
	for i, container := range p.Containers {
		m := &s.Containers[i]
		if !m.Started {
			continue
		}
		if checked[i] == nil {
			if err := c.lookOnce(ctx, s, m); err != nil {
				return err
			}
			continue
		}
		healthy, err := c.awaitHealthy(ctx, m, checked[i])
		if err != nil {
			return err
		}
		if !healthy {
			failed = true
			c.showUnhealthy(ctx, m, checked[i])
			c.fail(health.FailedText(container.Image))
		}
	}
	if failed {
		return refuse("%s", health.AllFailedText())
	}
	return nil
}

// lookOnce warns of a service without a check that has ended already. GitHub's runner goes on, too.
func (c *call) lookOnce(ctx context.Context, s *session, m *member) error {
	if !c.ended(ctx, m) {
		return nil
	}
	c.explain(m, c.showLog(ctx, m))
	m.Reported = true
	return c.save(s)
}

// awaitHealthy waits for one service.
func (c *call) awaitHealthy(ctx context.Context, m *member, check *checked) (bool, error) {
	for polls := 0; ; polls++ {
		switch state, ended := check.now(); {
		case state.Status == health.Healthy:
			c.say(health.HealthyText(m.Name))
			return true, nil
		case state.Status == health.Unhealthy || ended:
			return false, nil
		}
		wait := health.Poll(polls)
		c.say(health.WaitingText(m.Name, wait))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-check.decided: // what GitHub's runner sees only at its next look
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return false, errCancelled
		}
	}
}

// showUnhealthy shows what there is to find out why.
func (c *call) showUnhealthy(ctx context.Context, m *member, check *checked) {
	state, ended := check.now()
	if ended {
		c.ended(ctx, m)
	}
	log := c.showLog(ctx, m)
	if ended {
		c.explain(m, log)
	}
	if state.Output != "" {
		c.say("Output of the last health check:")
		c.say(steplog.Lines(state.Output)...)
	}
}

// explain adds what the log of a service that does not run means here. Words of the C library and of Node.js, of s6-overlay and of systemd.
func (c *call) explain(m *member, log string) {
	log = strings.ToLower(log)
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(log, word) })
	}
	if says("address already in use", "eaddrinuse") {
		c.warn(plan.PortInUseText(m.Name))
	}
	if says("can only run as pid 1", "must be run as pid 1") {
		c.warn(plan.NeedsPID1Text(m.Name))
	}
}

// checked is a service whose health is being checked.
type checked struct {
	container plan.Container
	decided   chan struct{} // closed once it is healthy, or has ended. An unhealthy service may recover before the next look, as with GitHub's runner

	mu    sync.Mutex
	state health.State
	ended bool // the service has
	once  sync.Once
}

func newChecked(container plan.Container, started time.Time) *checked {
	return &checked{container: container, decided: make(chan struct{}), state: health.Start(started)}
}

func (k *checked) now() (health.State, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.ended
}

func (k *checked) set(state health.State, ended bool) {
	k.mu.Lock()
	k.state, k.ended = state, ended
	k.mu.Unlock()
	if state.Status == health.Healthy || ended {
		k.once.Do(func() { close(k.decided) })
	}
}

// run checks until ctx ends, or the service does.
func (k *checked) run(ctx context.Context, guard Guard) {
	check, state := *k.container.Health, health.State{}
	for {
		state, _ = k.now()
		if !k.wait(ctx, guard, state.Wait(check, time.Now())) {
			return
		}
		begun := time.Now()
		got, err := guard.Health(ctx, client.Process{
			Argv: check.Command, Env: k.container.Env, Dir: k.container.WorkDir, User: k.container.User, Nofile: limits(k.container.NoFile),
		}, check.Timeout)
		if ctx.Err() != nil {
			return
		}
		result := health.Result{Start: begun, ExitCode: got.Exit.Code, Output: got.Output}
		switch {
		case err != nil:
			result = health.Result{Start: begun, ExitCode: -1, Output: err.Error()}
		case got.TimedOut:
			result = check.TimedOut(begun, got.Output)
		case got.Exit.Text != "":
			result.Output = got.Exit.Text
		}
		k.set(state.After(check, result), false)
	}
}

// lookAtService is how often a service is asked whether it still runs while the next check is far away.
const lookAtService = time.Second

// wait waits for the next check; false if there will be none.
func (k *checked) wait(ctx context.Context, guard Guard, long time.Duration) bool {
	until := time.NewTimer(long)
	defer until.Stop()
	look := time.NewTicker(lookAtService)
	defer look.Stop()
	for {
		select {
		case <-until.C:
			return true
		case <-ctx.Done():
			return false
		case <-look.C:
			status, err := guard.Status(ctx)
			if ctx.Err() != nil {
				return false
			}
			if err != nil || status.Exit != nil {
				state, _ := k.now()
				k.set(state, true)
				return false
			}
		}
	}
}
