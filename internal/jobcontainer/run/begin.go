package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// begin asks for containers, adds them to the session, and waits until they run. A kubelet does not start a container of this kind again, also if it, or the
// container runtime, was restarted while it started it. All of the request are asked for again then. None of them has run anything.
func (c *call) begin(ctx context.Context, draft plan.Draft, s *session) (plan.Plan, error) {
	at := len(s.Containers)
	for try := 1; ; try++ {
		p, err := c.beginOnce(ctx, draft, s, try)
		if err == nil || try == jobcontainer.MaxTries || !errors.Is(err, errNotStarted) {
			return p, err
		}
		c.say(steplog.Lines(err.Error())...)
		c.say(fmt.Sprintf("Starting the job's containers again (%d of %d).", try+1, jobcontainer.MaxTries))
		c.giveUp(ctx, s, at)
		s.Containers = s.Containers[:at] // as the plan has them
	}
}

func (c *call) beginOnce(ctx context.Context, draft plan.Draft, s *session, try int) (plan.Plan, error) {
	granted, err := c.ask(ctx, draft.Wanted(), try)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := c.complete(draft, granted)
	if err != nil {
		return plan.Plan{}, err
	}
	s.add(p.Containers)
	if err := c.save(s); err != nil {
		return plan.Plan{}, err
	}
	if err := c.want(p.Containers); err != nil {
		return plan.Plan{}, err
	}
	if try == 1 {
		c.remark(p)
	}
	return p, c.awaitGuards(ctx, p.Containers)
}

// remark shows what a plan does not do as the workflow asks.
func (c *call) remark(p plan.Plan) {
	for _, warning := range p.Warnings {
		c.warn(warning)
	}
	c.say(p.Notes...)
}

// giveUp ends the session's containers from one on, and keeps those that could not be ended, for cleanup_job. Those that start later end by themselves.
func (c *call) giveUp(ctx context.Context, s *session, from int) {
	kept := s.Containers[:from:from]
	for _, m := range s.Containers[from:] {
		if err := c.end(ctx, m, 0); err != nil {
			c.warn(err.Error())
			kept = append(kept, m)
		}
	}
	s.Containers = kept
	if err := c.save(s); err != nil {
		c.warn(err.Error())
	}
}
