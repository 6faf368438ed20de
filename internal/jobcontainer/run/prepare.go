package run

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/servicename"
)

// prepare starts a job's containers. Whatever fails, cleanup_job comes later and ends what was started.
func (c *call) prepare(ctx context.Context) error {
	asked := c.input.Prepare
	if asked.Container != nil {
		if err := c.checkWorkDir(); err != nil {
			return err
		}
	}
	draft, err := plan.ForJob(plan.Job{Container: asked.Container, Services: asked.Services, Names: c.serviceNames(asked.Services)}, c.runner())
	if err != nil {
		return err
	}
	s := &session{Request: c.requestID()}
	if err := c.save(s); err != nil { // also of the job before, in a runner that has one after another
		return err
	}
	p, err := c.begin(ctx, draft, s)
	if err != nil {
		return err
	}
	s.Hosts = p.Hosts
	if err := c.save(s); err != nil {
		return err
	}
	if err := c.startAll(ctx, p, s); err != nil {
		return err
	}
	return c.respondPrepared(p, s)
}

// complete finishes the plan. Containers that were added without use end at once.
func (c *call) complete(draft plan.Draft, granted []jobcontainer.Granted) (plan.Plan, error) {
	p, err := draft.Complete(granted)
	if err == nil {
		return p, nil
	}
	for _, g := range granted {
		_ = volume.Withdraw(c.JobDir, g.Name) // without its wish, a guard ends by itself, only later
	}
	return plan.Plan{}, err
}

// add records containers, in the plan's order.
func (s *session) add(containers []plan.Container) {
	for _, p := range containers {
		m := member{Role: p.Role, Name: p.Name, Container: p.Container, Image: p.Image, Reference: p.Reference, User: p.User, NoFile: p.NoFile, Grace: p.StopTimeout}
		if p.Role == jobcontainer.RoleJob {
			m.Env = p.Env
		}
		s.Containers = append(s.Containers, m)
	}
}

// want makes the files without which guards do not stay.
func (c *call) want(containers []plan.Container) error {
	for _, p := range containers {
		if err := volume.Want(c.JobDir, p.Container); err != nil {
			return err
		}
	}
	return nil
}

// startAll brings the containers from their requests to readiness, in the order of GitHub's runner.
func (c *call) startAll(ctx context.Context, p plan.Plan, s *session) error {
	for i := range s.Containers {
		release, err := c.release(ctx, &s.Containers[i], p.Containers[i])
		if err != nil {
			return err
		}
		s.Containers[i].Root = release.Root
		s.alpine = s.alpine || s.Containers[i].Role == jobcontainer.RoleJob && release.Alpine
	}
	if err := c.save(s); err != nil {
		return err
	}
	for i, container := range p.Containers {
		if err := c.linkVolumes(ctx, &s.Containers[i], container); err != nil {
			return err
		}
	}
	if err := c.nameHosts(ctx, s); err != nil {
		return err
	}
	if err := c.openPorts(ctx, p, s); err != nil {
		return err
	}
	if err := c.startServices(ctx, p, s); err != nil {
		return err
	}
	return c.awaitHealth(ctx, p, s)
}

// release asks the guard of a container about its image, and refuses a user that the pool does not permit. The guard knows the numbers of names.
func (c *call) release(ctx context.Context, m *member, p plan.Container) (client.Release, error) {
	release, err := c.Guard(m.Container).Release(ctx, p.User)
	switch {
	case err != nil:
		return release, c.reason(m, err)
	case !release.Root && plan.IsRoot(p.User):
		return release, refuse("%s", plan.RootText(p.Image))
	case release.Denied != nil:
		return release, refuse("%s", plan.UserText(p.Name, p.Image, release.Denied.UID, release.Denied.Own))
	}
	return release, nil
}

// nameHosts makes services reachable by their names. One container that runs as root is enough, because all have one /etc/hosts.
func (c *call) nameHosts(ctx context.Context, s *session) error {
	if len(s.Hosts) == 0 {
		return nil
	}
	roots := s.roots()
	if len(roots) == 0 {
		c.warn(plan.NamesUnresolvableText())
		return nil
	}
	var err error
	for _, root := range roots { // a service may have ended
		if err = c.Guard(root.Container).Hosts(ctx, s.entries()); err == nil {
			return nil
		}
	}
	return c.reason(roots[len(roots)-1], err)
}

// startServices starts what the images, or the workflow, say.
func (c *call) startServices(ctx context.Context, p plan.Plan, s *session) error {
	for i, container := range p.Containers {
		if container.Argv == nil {
			continue
		}
		m := &s.Containers[i]
		status, err := c.Guard(m.Container).Start(ctx, client.Process{
			Argv: container.Argv, Env: container.Env, Dir: container.WorkDir, MakeDir: true, User: container.User, Nofile: limits(container.NoFile),
		}, container.StopSignal)
		if err != nil {
			return c.reason(m, err)
		}
		if status.Exit != nil && status.Exit.Text != "" {
			return refuse("Service '%s' could not be started: %s", m.Name, status.Exit.Text)
		}
		m.Started = true
		if err := c.save(s); err != nil {
			return err
		}
	}
	return nil
}

// openPorts opens the ports of services and of the job container, whose servers steps start later. As with Docker, they are taken before any process
// of the containers starts.
func (c *call) openPorts(ctx context.Context, p plan.Plan, s *session) error {
	for _, f := range p.Forwards {
		m := &s.Containers[f.Container]
		relay := client.Relay{Protocol: f.Protocol, Listen: uint16(f.HostPort), Target: uint16(f.Port)} //nolint:gosec // ports of the plan
		err := c.Guard(m.Container).Relay(ctx, relay)
		switch {
		case err == nil:
		case isFailure(err, wire.FailInUse):
			return refuse("%s", plan.PortTakenText(f.HostPort, plan.Titled(m.Role, m.Name), ""))
		default:
			return c.reason(m, err)
		}
	}
	return nil
}

// respondPrepared tells the runner what there is. It is the last that happens: a response means that all is ready.
func (c *call) respondPrepared(p plan.Plan, s *session) error {
	prepared := hook.Prepared{State: s.state(c.Pod), Alpine: s.alpine, Services: []hook.Started{}}
	for _, container := range p.Containers {
		started := hook.Started{ID: container.Container, Network: c.Pod, Ports: container.Ports}
		if container.Role == jobcontainer.RoleJob {
			prepared.Container = &started
			continue
		}
		prepared.Services = append(prepared.Services, started)
	}
	content, err := prepared.Encode(c.input.Prepare)
	if err != nil {
		return err
	}
	return c.respond(content)
}

// serviceNames are the names that the workflow gives the services, as far as the worker's log shows them.
func (c *call) serviceNames(services []hook.Container) []string {
	if len(services) == 0 {
		return nil
	}
	images := make([]string, 0, len(services))
	for _, service := range services {
		images = append(images, service.Image)
	}
	var declared []servicename.Declared
	if log, err := os.Open(c.workerLog()); err == nil {
		defer func() { _ = log.Close() }()
		declared, _ = servicename.FromWorkerLog(log)
	}
	return servicename.Resolve(declared, images)
}

// workerLog is the newest log of a worker; empty if there is none. Its time is in its name. The runner's root directory has the work
// directory in it, unless it was configured elsewhere: then it is where the runner has its node.
func (c *call) workerLog() string {
	roots := []string{filepath.Dir(c.workDir())}
	if container := c.input.Prepare.Container; container != nil {
		for _, mount := range container.SystemMountVolumes {
			if mount.Target == jobcontainer.ExternalsDir {
				roots = append(roots, filepath.Dir(mount.Source))
			}
		}
	}
	var logs []string
	for _, root := range roots {
		found, _ := filepath.Glob(filepath.Join(root, "_diag", "Worker_*.log")) // the pattern is valid
		logs = append(logs, found...)
	}
	slices.SortFunc(logs, func(a, b string) int { return cmp.Compare(filepath.Base(b), filepath.Base(a)) })
	if len(logs) == 0 {
		return ""
	}
	return logs[0]
}
