package run

import (
	"bytes"
	"context"
	"errors"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// dockerfileStep runs an action that has a Dockerfile. Its container is no ephemeral one, and has a guard as those have.
func (c *call) dockerfileStep(ctx context.Context) error {
	action := c.action()
	if c.Builder == nil {
		return refuse("%s", plan.DockerfileText(action))
	}
	step := c.input.Step
	runner := c.runner()
	runner.Restricted = false // the container is a part of buildkit's, root of the pod's user namespace, in every profile
	directory, file, known := plan.Context(step, runner)
	if !known {
		return refuse("Action '%s' can't be built: its Dockerfile '%s' is not below the runner's work directory.", action, step.Dockerfile)
	}
	step.Image = action // in texts
	draft, err := plan.ForStep(step, runner)
	if err != nil {
		return err
	}
	if err := c.checkWorkDir(); err != nil {
		return err
	}
	s, err := c.load()
	if err != nil {
		return err
	}
	name := "action-" + c.requestID()
	if err := volume.Want(c.JobDir, name); err != nil { // if this process ends, cleanup_job finds it by its wish
		return err
	}
	at := len(s.Containers)
	p, err := c.makeContainer(ctx, draft, builder.Request{Container: name, Directory: directory, File: file})
	if err != nil {
		_ = c.end(context.WithoutCancel(ctx), member{Name: plan.StepName, Container: name}, 0)
		return err
	}
	s.add(p.Containers)
	if err := c.save(s); err != nil {
		return err
	}
	return c.runStepContainer(ctx, s, at, p.Containers[0])
}

// makeContainer has the image built and its container started, with the build's output in the step's log.
func (c *call) makeContainer(ctx context.Context, draft plan.Draft, request builder.Request) (plan.Plan, error) {
	c.say(steplog.Group("Build the image of action '" + c.action() + "' from its " + request.File))
	log := &plainLog{call: c}
	built, err := c.Builder.Make(ctx, request, log)
	log.end()
	c.say(steplog.EndGroup())
	failure := new(builder.Failure)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return plan.Plan{}, errCancelled
	case errors.As(err, &failure):
		return plan.Plan{}, refuse("Action '%s' can't be built from its %s: %s.", c.action(), request.File, failure.Text)
	case errors.Is(err, builder.ErrLost):
		return plan.Plan{}, refuse("Action '%s' can't be built from its %s: the container 'buildkit' of the pod has ended, or ends. The build may have used more memory than the pool allows.",
			c.action(), request.File)
	default:
		return plan.Plan{}, err
	}
	p, err := draft.Complete([]jobcontainer.Granted{{Role: jobcontainer.RoleStep, Name: request.Container, Image: built.Image, Config: built.Config}})
	if err != nil {
		return plan.Plan{}, err
	}
	c.remark(p)
	return p, nil
}

// plainLog is the step's log for text in which nothing is a command for the runner. A line is written when it is whole.
type plainLog struct {
	*call
	rest []byte
}

// maxLine is how long a line may be that is written whole, in bytes.
const maxLine = 64 << 10

func (p *plainLog) Write(text []byte) (int, error) {
	p.rest = append(p.rest, text...)
	whole := bytes.LastIndexByte(p.rest, '\n') + 1
	if whole == 0 && len(p.rest) > maxLine {
		whole = len(p.rest)
	}
	p.say(steplog.Lines(string(p.rest[:whole]))...)
	p.rest = append(p.rest[:0], p.rest[whole:]...)
	return len(text), nil
}

// end writes what was no whole line.
func (p *plainLog) end() {
	p.say(steplog.Lines(string(p.rest))...)
	p.rest = nil
}

// action is how texts name the action of the step. A local one has no repository.
func (c *call) action() string {
	if repository := c.variable("GITHUB_ACTION_REPOSITORY"); repository != "" {
		return repository
	}
	return plan.ActionName(c.input.Step.Dockerfile, c.runner())
}
