package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// deleteAgain is how long a deletion may take that others' finalizers hold up before it is asked for again.
const deleteAgain = 30 * time.Second

func startKey(container string) string { return string(doStart) + "/" + container }

// do begins one step.
func (w *worker) do(ctx context.Context, step action) {
	switch step.Verb {
	case doAdopt:
		w.adopt(ctx)
	case doConfirmGone:
		w.confirmGone(ctx)
	case doWrite:
		w.write(ctx)
	case doPrepare:
		w.prepare(ctx)
	case doStart:
		w.start(ctx, step.Container)
	case doCancelStarts:
		w.cancelOp(string(doPrepare))
		for name := range w.containers {
			w.cancelOp(startKey(name))
		}
	case doTerminate:
		w.terminate(ctx, step.Container)
	case doKill:
		w.kill(ctx, step.Container)
	case doRemove:
		w.remove(ctx)
	case doDropFinalizer:
		w.dropFinalizer(ctx)
	case doDelete:
		w.deleteObject(ctx)
	}
}

// adopt learns what the sandbox has on record of the pod: an agent before this one may have started it (NODE-3).
func (w *worker) adopt(ctx context.Context) {
	var state sandbox.PodState
	pod, vol := w.pod, w.volumes()
	w.begin(ctx, string(doAdopt), 0, func(ctx context.Context) (err error) {
		state, err = w.a.opts.Sandbox.Inspect(ctx, w.ref.UID)
		if errors.Is(err, sandbox.ErrNotFound) {
			return nil
		}
		if err == nil {
			w.recordTerms(ctx, pod, &state)
			faultpoint.Reached(faultpoint.Adopting)
			for _, c := range state.Containers {
				if c.Exit != nil {
					w.a.explain(vol, pod, c.Name, c.Exit)
				}
			}
		}
		return err
	}, func(err error) {
		if err != nil {
			return
		}
		w.adopted, w.address, w.terms = true, state.Address, state.Terms
		for _, c := range state.Containers {
			w.record(c)
		}
		if w.pod != nil {
			w.mourn()
		}
		w.prepared = len(state.Containers) > 0
		if w.prepared {
			w.tokensDue = w.a.opts.Clock.Now() // their age is unknown
		}
	})
}

// recordTerms has the sandbox record the terms of a pod that an earlier release of the agent has started: if the API server loses the pod, they are
// the only ones.
func (w *worker) recordTerms(ctx context.Context, pod *corev1.Pod, state *sandbox.PodState) {
	if pod == nil || state.Terms != (sandbox.Terms{}) {
		return
	}
	if err := w.a.opts.Sandbox.Prepare(ctx, pod); err != nil {
		w.log.Warn("recording the pod's grace period failed; the next start of the node agent tries it again", "error", err)
		return
	}
	state.Terms = sandbox.TermsOf(pod)
}

// record takes over what the sandbox says of a container.
func (w *worker) record(c sandbox.ContainerState) {
	t := w.containers[c.Name]
	if t == nil {
		t = &track{}
		w.containers[c.Name] = t
	}
	t.observed.id, t.observed.startedAt = c.ID, c.StartedAt
	t.observed.stage, t.observed.ready, t.observed.starting = running, w.readyAtStart(c.Name), w.probeOf(c.Name, startupProbe) != nil
	if c.Exit != nil {
		t.observed.stage, t.observed.exit = exited, *c.Exit
	}
}

// mourn settles containers that the API server has seen started and that the sandbox does not know. They are not started again. NODE-4: if
// their end was not observed, it is unknown.
func (w *worker) mourn() {
	for _, st := range slices.Concat(w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses) {
		t := w.containers[st.Name]
		if t == nil || t.observed.stage != unstarted {
			continue
		}
		switch {
		case st.State.Terminated != nil:
			t.observed.stage = exited
			t.observed.exit = sandbox.Exit{Code: st.State.Terminated.ExitCode}
		case st.State.Running != nil:
			t.observed.stage, t.observed.id = exited, st.ContainerID
			t.observed.exit = sandbox.Exit{
				Code: sandbox.UnknownExitCode, Unknown: true, Reason: "ContainerStatusUnknown",
				Message:   "the container was running, and no longer exists on the node",
				StartedAt: st.State.Running.StartedAt.Time, FinishedAt: w.a.opts.Clock.Now(),
			}
		}
	}
}

// confirmGone asks the API server itself whether the pod is gone: what the cache lacks is no proof.
func (w *worker) confirmGone(ctx context.Context) {
	var pod *corev1.Pod
	elsewhere := w.boundElsewhere()
	w.begin(ctx, string(doConfirmGone), w.a.opts.RequestTimeout, func(ctx context.Context) (err error) {
		if elsewhere != nil {
			return elsewhere
		}
		pod, err = w.a.cluster.findPod(ctx, w.a.opts.Name, w.ref)
		return err
	}, func(err error) {
		switch {
		case err != nil || w.presence != missing:
		case pod == nil:
			w.presence = gone
			w.reportGone()
		default:
			w.presence = present
			w.accept(pod)
		}
	})
}

// write tells the API server how the pod is when it is the write's turn, which may be long after there was something to tell.
func (w *worker) write(ctx context.Context) {
	var updated *corev1.Pod
	w.begin(ctx, string(doWrite), 0, func(ctx context.Context) error { // the turn has no time limit, the call has one
		giveBack, err := w.a.cluster.turn(ctx)
		if err != nil {
			return err
		}
		defer giveBack()
		now, err := w.current(ctx)
		if err == nil && !now.same() {
			updated, err = w.a.cluster.patchStatus(ctx, now.is, now.want)
		}
		return err
	}, func(err error) { w.written(updated, err) })
}

// written takes the API server's answer to a change of the pod; nil if nothing had to be changed.
func (w *worker) written(updated *corev1.Pod, err error) {
	switch {
	case err == nil && updated == nil:
	case err == nil:
		w.accept(updated)
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // no pod of this UID, it seems
		if w.presence == present {
			w.presence = missing
		}
	}
}

func (w *worker) dropFinalizer(ctx context.Context) {
	old, want := w.pod, w.pod.DeepCopy()
	want.Finalizers = slices.DeleteFunc(want.Finalizers, func(f string) bool { return f == runnerpod.FinalizerSandbox })
	var updated *corev1.Pod
	w.begin(ctx, string(doDropFinalizer), 0, func(ctx context.Context) error { // the turn has no time limit, the call has one
		giveBack, err := w.a.cluster.turn(ctx)
		if err != nil {
			return err
		}
		defer giveBack()
		updated, err = w.a.cluster.patchStatus(ctx, old, want)
		return err
	}, func(err error) {
		w.written(updated, err)
		// With the last finalizer of a pod without grace goes the pod, and the watch will say so.
		if err == nil && len(updated.Finalizers) == 0 && ptr.Deref(updated.DeletionGracePeriodSeconds, 0) == 0 {
			w.wakeAt(w.op(string(doDelete)), deleteAgain)
		}
	})
}

func (w *worker) deleteObject(ctx context.Context) {
	pod := w.pod
	w.begin(ctx, string(doDelete), w.a.opts.RequestTimeout, func(ctx context.Context) error {
		// The watch shows that the pod has gone before the answer is here, and ends the worker. The API server would take a call
		// that is cancelled then for one that has failed, and say so of every pod.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.a.opts.RequestTimeout)
		defer cancel()
		err := w.a.cluster.deletePod(ctx, pod)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone, or another pod has the name: the watch says so
		}
		return err
	}, func(err error) {
		if err == nil {
			w.wakeAt(w.op(string(doDelete)), deleteAgain)
		}
	})
}

func (w *worker) prepare(ctx context.Context) {
	pod := w.pod
	vol := w.volumes()
	var due time.Time
	var state sandbox.PodState
	w.begin(ctx, string(doPrepare), 0, func(ctx context.Context) (err error) {
		if err = w.a.opts.Sandbox.Prepare(ctx, pod); err != nil {
			return err
		}
		if state, err = w.a.opts.Sandbox.Inspect(ctx, w.ref.UID); err != nil {
			return err
		}
		vol.refs.machine = w.a.machine(state.Address)
		due, err = vol.prepare(ctx, pod)
		return err
	}, func(err error) {
		if errors.Is(err, context.Canceled) {
			return // the pod must be stopped
		}
		if err != nil {
			w.delayed(w.order(), "ContainerCreating", err)
			w.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", w.again(string(doPrepare), err))
			return
		}
		w.prepared, w.tokensDue, w.address = true, due, state.Address
		for _, t := range w.containers {
			t.observed.waiting = waiting{}
		}
	})
}

// delayed shows why containers do not start.
func (w *worker) delayed(names []string, reason string, err error) {
	w.refused(err)
	var known *sandbox.DelayedError
	if errors.As(err, &known) {
		reason = known.Reason
	}
	for _, name := range names {
		if t := w.containers[name]; t.observed.stage == unstarted {
			t.observed.waiting = waiting{reason: reason, message: err.Error()}
		}
	}
}

func (w *worker) start(ctx context.Context, name string) {
	pod := w.pod
	spec, err := containerOf(pod, nil, name)
	if err != nil {
		return
	}
	vol := w.volumes()
	var state sandbox.ContainerState
	w.begin(ctx, startKey(name), 0, func(ctx context.Context) error {
		container, err := vol.refs.container(ctx, pod, spec)
		if err != nil {
			return err
		}
		if container.Message, err = vol.messageFile(spec); err != nil {
			return err
		}
		if err := w.a.opts.Sandbox.Start(ctx, pod, container); err != nil {
			return err
		}
		faultpoint.Reached(faultpoint.ContainerStarted)
		if err := w.inspect(ctx, name, &state); err != nil {
			return err
		}
		if state.Exit != nil { // already
			w.a.explain(vol, pod, name, state.Exit)
		}
		return nil
	}, func(err error) {
		if errors.Is(err, context.Canceled) {
			return // the pod must be stopped
		}
		if err != nil {
			w.delayed([]string{name}, sandbox.ReasonConfigError, err)
			w.event(corev1.EventTypeWarning, "Failed", w.again(startKey(name), err))
			return
		}
		w.record(state)
		w.a.events.Eventf(pod, corev1.EventTypeNormal, "Started", "Container %s started", name)
	})
}

// inspect finds a container that has just been started, even if the step was cancelled meanwhile.
func (w *worker) inspect(ctx context.Context, name string, state *sandbox.ContainerState) error {
	all, err := w.a.opts.Sandbox.Inspect(context.WithoutCancel(ctx), w.ref.UID)
	if err != nil {
		return err
	}
	found, ok := all.Container(name)
	if !ok {
		return sandbox.ErrNotFound
	}
	*state = found
	return nil
}

// again says beside an error when the step is tried again, if it is.
func (w *worker) again(key string, err error) error {
	if op := w.ops[key]; w.refusal == nil && op != nil && op.backoff > 0 {
		return fmt.Errorf("%w; retrying within %s", err, op.backoff)
	}
	return err
}

func (w *worker) event(kind, reason string, err error) {
	if w.pod != nil {
		w.a.events.Event(w.pod, kind, reason, err.Error())
	}
}

func (w *worker) remove(ctx context.Context) {
	vol := w.volumes()
	w.begin(ctx, string(doRemove), 0, func(ctx context.Context) error {
		if err := w.a.opts.Sandbox.Remove(ctx, w.ref.UID); err != nil {
			return err
		}
		return vol.remove()
	}, func(err error) {
		w.removed = w.removed || err == nil
	})
}

// attend keeps what must go on beside the steps: waiting for containers to end, probing them, renewing tokens.
func (w *worker) attend(ctx context.Context, v view) {
	anyRunning := false
	for name, t := range w.containers {
		if t.observed.stage != running {
			w.cancelProbes(name)
			continue
		}
		anyRunning = true
		w.await(ctx, name)
		if !v.Deleting && !sidecarsAlone(v.Containers) {
			w.probe(ctx, name)
			continue
		}
		// The pod's end stops the container, and nothing else does.
		w.cancelOp(probeKey(name, startupProbe))
		w.cancelOp(probeKey(name, livenessProbe))
	}
	if anyRunning && !w.tokensDue.IsZero() && w.pod != nil && w.presence == present {
		w.renewTokens(ctx)
	}
}

func (w *worker) await(ctx context.Context, name string) {
	var exit sandbox.Exit
	pod, vol := w.pod, w.volumes()
	w.begin(ctx, "wait/"+name, 0, func(ctx context.Context) (err error) {
		if exit, err = w.a.opts.Sandbox.Wait(ctx, w.ref.UID, name); err == nil {
			w.a.explain(vol, pod, name, &exit)
		}
		return err
	}, func(err error) {
		if err != nil {
			return
		}
		t := w.containers[name]
		t.observed.stage, t.observed.exit, t.observed.ready = exited, exit, false
		w.a.metrics.containerEnded(t.observed)
		w.log.Info("container exited", "container", name, "code", exit.Code, "signal", exit.Signal, "unknown", exit.Unknown)
	})
}

func (w *worker) renewTokens(ctx context.Context) {
	const key = "tokens"
	if wait := w.tokensDue.Sub(w.a.opts.Clock.Now()); wait > 0 {
		if op := w.ops[key]; op == nil || op.retryAt.IsZero() {
			op = &operation{}
			w.ops[key] = op
			w.wakeAt(op, wait)
		}
		return
	}
	pod, vol := w.pod, w.volumes()
	var due time.Time
	w.begin(ctx, key, w.a.opts.RequestTimeout, func(ctx context.Context) (err error) {
		due, err = vol.renewTokens(ctx, pod)
		return err
	}, func(err error) {
		if err == nil {
			w.tokensDue = due
		}
	})
}
