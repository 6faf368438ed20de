package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// release unloads the agent of another identity, which is loaded again unless nothing of it runs, also after the end of ctx.
func (s nodeAgent) release(ctx context.Context, h machost.Host, former agentIdentity) error {
	err := s.unloadIdle(ctx, h, former)
	if err == nil {
		return nil
	}
	if again := s.loadAgain(context.WithoutCancel(ctx), h); again != nil {
		return &machost.StepError{File: NodePlist, Remedy: "Apply again: pods may be running without a node agent.",
			Err: fmt.Errorf("loading the former job of the node agent again: %w", again)}
	}
	return err
}

// loadAgain tries for a while: launchd may refuse a job that it has just unloaded.
func (s nodeAgent) loadAgain(ctx context.Context, h machost.Host) error {
	for deadline := s.job.clock.Now().Add(goneWait); ; {
		err := s.job.load(ctx, h)
		if err == nil || s.job.clock.Now().After(deadline) {
			return err
		}
		if err := wait(ctx, s.job.clock, time.Second); err != nil {
			return err
		}
	}
}

// unloadIdle counts what runs once the agent is unloaded: only then can nothing start any more.
func (s nodeAgent) unloadIdle(ctx context.Context, h machost.Host, former agentIdentity) error {
	if err := s.job.unload(ctx, h); err != nil {
		return err
	}
	list, err := processes(ctx, h)
	if err != nil {
		return fmt.Errorf("counting pods and virtual machines: %w", err)
	}
	if running := Running(list, former.StateDir); running > 0 {
		return fmt.Errorf("%w: %d pods or virtual machines, counted while the node agent was unloaded", machost.ErrBusy, running)
	}
	return nil
}

// requireLogin defers a change of the user until auto-login has made it. That step may have been deferred for machines that have ended since.
func (s nodeAgent) requireLogin(ctx context.Context, h machost.Host) error {
	user, err := autoLoginUser(ctx, h)
	if err != nil || user == s.config.User {
		return err
	}
	if err := s.Keep(context.WithoutCancel(ctx), h); err != nil {
		return err
	}
	return fmt.Errorf("%w: the step auto-login, which comes first, was deferred, and the user who is logged in automatically is %q", machost.ErrBusy, user)
}

// Keep loads the job's file as it is if launchd has no job: an apply that unloaded it was killed, or failed before it could load it again.
func (s nodeAgent) Keep(ctx context.Context, h machost.Host) error {
	if !s.config.WantsNode() {
		return nil
	}
	if _, err := h.Stat(NodePlist); err != nil {
		if isMissing(err) {
			return nil
		}
		return err
	}
	loaded, _, err := s.job.state(ctx, h)
	if err != nil || loaded {
		return err
	}
	// The record may be of another file, or of a process that was started from another program.
	if err := errors.Join(h.Remove(agentRecord), s.loadAgain(ctx, h)); err != nil {
		return fmt.Errorf("loading the job of the node agent again: %w", err)
	}
	return nil
}
