package run

import (
	"context"
	"fmt"
	"path"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
)

// Codes of a guard for a command that was not found, or can't be executed.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// MaxSteps is how many containers of steps a job may have: their entries stay in the pod's spec.
const MaxSteps = 32

// scriptStep runs a step in the job container.
func (c *call) scriptStep(ctx context.Context) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	job := s.job()
	if job == nil {
		return refuse("The step can't run: this job's container was not started. See the log of \"Initialize containers\".")
	}
	script, err := plan.ForScript(c.input.Script, job.Env)
	if err != nil {
		return err
	}
	c.beforeStep(ctx, s)
	exit, err := c.exec(ctx, c.Guard(job.Container), client.Process{Argv: script.Argv, Env: script.Env, Dir: script.WorkDir, User: job.User, Nofile: limits(job.NoFile)})
	if err != nil {
		return c.reason(job, err)
	}
	return c.finish(exit, job.Name, script.Argv[0], job.Image, nil)
}

// beforeStep does what a step must find: names of services, and the word that one of them has ended. What fails of it fails no step.
func (c *call) beforeStep(ctx context.Context, s *session) {
	if len(s.roots()) > 0 { // the kubelet writes the file again whenever a container starts
		if err := c.nameHosts(ctx, s); err != nil {
			c.warn("Service names can't be resolved in this step: " + err.Error())
		}
	}
	changed := false
	for i := range s.Containers {
		if m := &s.Containers[i]; m.Role == jobcontainer.RoleService && m.Started && !m.Reported && c.ended(ctx, m) {
			m.Reported, changed = true, true
		}
	}
	if changed {
		if err := c.save(s); err != nil {
			c.warn(err.Error())
		}
	}
}

// ended warns about a service that has ended.
func (c *call) ended(ctx context.Context, m *member) bool {
	status, err := c.Guard(m.Container).Status(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return false
	case err != nil:
		c.warn(c.reason(m, err).Error())
		return true
	case status.Exit != nil:
		c.warn(plan.EndedText(m.Name, status.Exit.Code))
		if status.Exit.OutOfMemory {
			c.warn(plan.ProcessKilledText(m.Name, c.memory()))
		}
		return true
	}
	return false
}

// finish answers the runner for a step's process, and passes its exit code on.
func (c *call) finish(exit client.Exit, container, program, image string, state []byte) error {
	switch {
	case exit.OutOfMemory:
		c.fail(plan.ProcessKilledText(container, c.memory()))
	case exit.Text == "":
	case exit.Code == codeNotFound && path.Base(program) == program:
		if c.input.Command == hook.RunScriptStep {
			c.fail(plan.NoShellText(program, image))
		} else {
			c.fail(plan.NoCommandText(program, image))
		}
	case exit.Code == codeNotFound || exit.Code == codeNotExecutable:
		c.fail(fmt.Sprintf("The step could not be started in image '%s': %s", image, exit.Text))
	default:
		c.fail(exit.Text)
	}
	if exit.Code != 0 {
		return &ExitError{Code: exit.Code}
	}
	content, err := hook.EncodeState(c.input.Command, state)
	if err != nil {
		return err
	}
	return c.respond(content)
}

// containerStep runs a container action in a container of its own. It may be called without prepare_job.
func (c *call) containerStep(ctx context.Context) error {
	step := c.input.Step
	if step.Dockerfile != "" {
		return c.dockerfileStep(ctx)
	}
	s, err := c.load()
	if err != nil {
		return err
	}
	if s.Steps >= MaxSteps {
		return refuse("This job has started %d containers, the most this pool allows.", MaxSteps)
	}
	draft, err := plan.ForStep(step, c.runner())
	if err != nil {
		return err
	}
	if err := c.checkWorkDir(); err != nil {
		return err
	}
	s.Steps++
	if err := c.save(s); err != nil {
		return err
	}
	at := len(s.Containers)
	p, err := c.begin(ctx, draft, s)
	if err != nil {
		c.giveUp(context.WithoutCancel(ctx), s, at)
		return err
	}
	return c.runStepContainer(ctx, s, at, p.Containers[0])
}

// runStepContainer runs the process of the container that was added last, and ends the container.
func (c *call) runStepContainer(ctx context.Context, s *session, at int, p plan.Container) error {
	m := s.Containers[at]
	defer c.giveUp(context.WithoutCancel(ctx), s, at)
	if _, err := c.release(ctx, &m, p); err != nil {
		return err
	}
	if err := c.linkVolumes(ctx, &m, p); err != nil {
		return err
	}
	c.beforeStep(ctx, s)
	exit, err := c.exec(ctx, c.Guard(m.Container), client.Process{
		Argv: p.Argv, Env: p.Env, Dir: p.WorkDir, MakeDir: true, User: p.User, Nofile: limits(p.NoFile),
	})
	if err != nil {
		return c.reason(&m, err)
	}
	return c.finish(exit, m.Name, p.Argv[0], m.Image, nil)
}
