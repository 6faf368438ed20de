package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// mostGrace bounds --stop-timeout: a runner is not occupied for longer by a job that is over.
const mostGrace = time.Minute

// logPatience bounds the wait for a service's log, which is at most some MiB.
const logPatience = 10 * time.Second

// cleanup shows the logs of services, and ends all containers of the job, also those of a prepare_job that has failed. It fails for
// nothing that is over with the runner's pod anyway.
func (c *call) cleanup(ctx context.Context) error {
	s, err := c.load()
	if err != nil {
		c.warn(err.Error())
		s = &session{}
	}
	for i := range s.Containers {
		if m := &s.Containers[i]; m.Role == jobcontainer.RoleService && m.Started {
			c.showLog(ctx, m)
		}
	}
	members := append(s.Containers, c.forgotten(s)...)
	var ends sync.WaitGroup
	for _, m := range members {
		grace := m.Grace
		if grace <= 0 {
			grace = c.Bounds.StopGrace
		}
		if m.Role != jobcontainer.RoleService {
			grace = 0 // its steps are over
		}
		grace = min(grace, mostGrace)
		ends.Go(func() {
			if err := c.end(ctx, m, grace); err != nil {
				c.warn(err.Error())
			}
		})
	}
	ends.Wait()
	if err := os.Remove(c.sessionFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.warn("Removing what is known of the job's containers: " + err.Error())
	}
	content, err := hook.EncodeState(hook.CleanupJob, nil)
	if err != nil {
		return err
	}
	return c.respond(content)
}

// forgotten are containers that are wanted, and that the session does not have.
func (c *call) forgotten(s *session) []member {
	known := map[string]bool{}
	for _, m := range s.Containers {
		known[m.Container] = true
	}
	wishes, _ := filepath.Glob(filepath.Join(c.JobDir, "*", filepath.Base(jobcontainer.Wish("x")))) // the pattern is valid
	var members []member
	for _, wish := range wishes {
		if name := filepath.Base(filepath.Dir(wish)); !known[name] {
			members = append(members, member{Role: jobcontainer.RoleStep, Name: name, Container: name})
		}
	}
	return members
}

// end stops a container for good. One that starts later ends by itself.
func (c *call) end(ctx context.Context, m member, grace time.Duration) error {
	err := volume.Withdraw(c.JobDir, m.Container)
	ctx, cancel := context.WithTimeout(ctx, grace+logPatience)
	defer cancel()
	_, ending := c.Guard(m.Container).End(ctx, grace)
	if ending != nil && !errors.Is(ending, client.ErrAbsent) && !errors.Is(ending, client.ErrLost) {
		err = errors.Join(err, fmt.Errorf("ending container '%s': %w", m.Name, ending))
	}
	return err
}

// showLog shows the log of a service as a group, and returns it. Nothing in it is a command for the runner.
func (c *call) showLog(ctx context.Context, m *member) string {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	var log bytes.Buffer
	err := c.Guard(m.Container).Logs(ctx, &log, &log)
	lines := append([]string{steplog.Group(plan.LogsTitle(m.Name))}, steplog.Lines(log.String())...)
	if err != nil {
		lines = append(lines, fmt.Sprintf("The log of service '%s' can't be read any more: its container has ended.", m.Name))
	}
	c.say(append(lines, steplog.EndGroup())...)
	return log.String()
}
