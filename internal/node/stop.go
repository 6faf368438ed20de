package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// hook is a preStop hook, ready to be run beside the worker.
type hook func(ctx context.Context) error

// stopPlan is how a container is stopped: its hook, and the time that it has from then until KILL.
type stopPlan struct {
	pod   *corev1.Pod
	hook  hook // nil for none
	grace time.Duration
	cut   context.Context // ends the hook when it ends; nil for never
}

var errHookRefused = errors.New("the request failed")

// preStop is the hook of a container. TERM waits for it, and its time is part of the grace period.
func (w *worker) preStop(name string) hook {
	if w.pod == nil {
		return nil
	}
	c, err := containerOf(w.pod, nil, name)
	if err != nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	switch h := c.Lifecycle.PreStop; {
	case h.Sleep != nil:
		return func(ctx context.Context) error {
			select {
			case <-w.a.opts.Clock.After(time.Duration(h.Sleep.Seconds) * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	case h.Exec != nil:
		return func(ctx context.Context) error {
			code, err := w.a.opts.Sandbox.Exec(ctx, w.ref.UID, name, h.Exec.Command, sandbox.Streams{})
			if err == nil && code != 0 {
				err = fmt.Errorf("the command exited with code %d", code)
			}
			return err
		}
	case h.HTTPGet != nil:
		get := w.getting(c, h.HTTPGet)
		return func(ctx context.Context) error {
			if !get(ctx) {
				return errHookRefused
			}
			return nil
		}
	}
	return nil
}

// stop runs the hook until it returns, its time is up or it is cut short, and then sends TERM. It runs beside the worker. When ctx ends, the
// agent ends or something else stops the container, and TERM is not sent.
func (w *worker) stop(ctx context.Context, name string, s stopPlan) error {
	if s.hook != nil && s.grace > 0 {
		hookCtx, cancel := context.WithCancel(ctx)
		timer := w.a.opts.Clock.AfterFunc(s.grace, cancel)
		if s.cut != nil {
			defer context.AfterFunc(s.cut, cancel)()
		}
		err := s.hook(hookCtx)
		timer.Stop()
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, sandbox.ErrNotRunning) {
			w.log.Warn("a preStop hook failed", "container", name, "error", err)
			w.a.events.Eventf(s.pod, corev1.EventTypeWarning, "FailedPreStopHook", "The preStop hook of container %s failed", name)
		}
	}
	return w.a.opts.Sandbox.Signal(ctx, w.ref.UID, name, sandbox.Terminate)
}

func termKey(container string) string { return "signal/" + container }

// terminate asks a container to end, after its hook.
func (w *worker) terminate(ctx context.Context, name string) {
	t, s := w.containers[name], stopPlan{pod: w.pod, hook: w.preStop(name), grace: w.killAt.Sub(w.a.opts.Clock.Now())}
	if w.underWay(termKey(name)) {
		return
	}
	var cutHook context.CancelFunc
	s.cut, cutHook = context.WithCancel(context.Background())
	t.cutHook, t.hooked = cutHook, s.hook != nil
	w.begin(ctx, termKey(name), 0, func(ctx context.Context) error {
		defer cutHook()
		return w.stop(ctx, name, s)
	}, func(err error) {
		if err != nil {
			return
		}
		t.termSent = true
		if t.hooked { // whatever time it took, TERM has a little of its own
			t.sparedUntil = w.a.opts.Clock.Now().Add(minGrace)
			w.wakeIn(minGrace)
		}
		if w.pod != nil {
			w.a.events.Eventf(w.pod, corev1.EventTypeNormal, "Killing", "Stopping container %s", name)
		}
	})
}

func (w *worker) kill(ctx context.Context, name string) {
	w.begin(ctx, "kill/"+name, 0, func(ctx context.Context) error {
		return w.a.opts.Sandbox.Signal(ctx, w.ref.UID, name, sandbox.Kill)
	}, func(err error) {
		if err == nil {
			w.containers[name].termSent, w.containers[name].killSent = true, true
		}
	})
}

// spared reports whether a container is not killed yet although the grace period is over: its hook is being ended, or TERM has just been sent.
func (w *worker) spared(name string) bool {
	t := w.containers[name]
	return t.hooked && w.underWay(termKey(name)) || w.a.opts.Clock.Now().Before(t.sparedUntil)
}

// cutHooks ends hooks that run: the grace period was shortened.
func (w *worker) cutHooks() {
	for _, t := range w.containers {
		if t.cutHook != nil {
			t.cutHook()
		}
	}
}

// stopOf is how a container is stopped when that probe fails.
func (w *worker) stopOf(name string, probe *corev1.Probe) stopPlan {
	s := stopPlan{pod: w.pod, hook: w.preStop(name), grace: w.a.opts.OrphanGrace}
	for _, seconds := range []*int64{w.pod.Spec.TerminationGracePeriodSeconds, probe.TerminationGracePeriodSeconds} {
		if seconds != nil {
			s.grace = time.Duration(*seconds) * time.Second
		}
	}
	return s
}

// unhealthy stops a container that its probe has given up: with TERM, and with KILL when the grace period is over. ctx ends with the container,
// and when the pod is deleted, which stops the container too.
func (w *worker) unhealthy(ctx context.Context, name string, kind probeKind, s stopPlan) {
	clock := w.a.opts.Clock
	began := clock.Now()
	w.log.Warn("a container's probe failed: stopping the container", "container", name, "probe", string(kind))
	w.a.events.Eventf(s.pod, corev1.EventTypeWarning, "Unhealthy", "Stopping container %s: its %s probe failed", name, kind)
	if err := w.stop(ctx, name, s); err != nil {
		return // the probe is asked again
	}
	w.post(ctx, func() { w.containers[name].termSent = true })
	select {
	case <-clock.After(max(s.grace-clock.Since(began), minGrace)):
	case <-ctx.Done():
		return
	}
	if err := w.a.opts.Sandbox.Signal(ctx, w.ref.UID, name, sandbox.Kill); err != nil {
		return
	}
	w.post(ctx, func() { w.containers[name].killSent = true })
}
