package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// exitPatience is how long a container without an exit on record is given to prove that it has exited, as after a restart of the machine.
const exitPatience = time.Second

// CheckName returns an error if pods of another node still run in the state directory. The API server shows this node its own pods only, so these
// would look deleted, and be stopped. Call it before a certificate is requested: the one in the state directory belongs to the node of these pods.
// It reads Name, StateDir, Sandbox and Log.
func (o Options) CheckName(ctx context.Context) error {
	refs, err := o.Sandbox.List(ctx)
	if err != nil {
		o.Log.Error("listing the sandbox's records failed; the workers check the node of each pod", "error", err)
		return nil
	}
	other, running := "", []string(nil)
	for _, ref := range refs {
		state, err := o.Sandbox.Inspect(ctx, ref.UID)
		if err == nil && ofAnotherNode(state.Terms, o.Name) && podRuns(ctx, o.Sandbox, state) {
			other, running = state.Node, append(running, ref.Namespace+"/"+ref.Name)
		}
	}
	if len(running) == 0 {
		return nil
	}
	return fmt.Errorf("the state directory %s is that of node %s, and pods of it are running: %s. Start the node agent with --name %s, "+
		"drain that node, and change the name when they have finished; or stop them with `bullpen node cleanup`",
		o.StateDir, other, strings.Join(running, ", "), other)
}

// podRuns reports whether a container of the pod runs.
func podRuns(ctx context.Context, sb sandbox.Sandbox, state sandbox.PodState) bool {
	return slices.ContainsFunc(state.Containers, func(c sandbox.ContainerState) bool {
		if c.Exit != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, exitPatience)
		defer cancel()
		_, err := sb.Wait(ctx, state.UID, c.Name)
		return err != nil && !errors.Is(err, sandbox.ErrNotFound)
	})
}

// ofAnotherNode reports whether a pod on record was bound to a node of another name. Records of earlier releases name none.
func ofAnotherNode(terms sandbox.Terms, name string) bool {
	return terms.Node != "" && terms.Node != name
}

// boundElsewhere says why this node's pods in the API server prove nothing of the pod; nil when they do, or when nothing of it runs.
func (w *worker) boundElsewhere() error {
	if !ofAnotherNode(w.terms, w.a.opts.Name) || !w.anyRunning() {
		return nil
	}
	return fmt.Errorf("the pod is bound to node %s, and this is node %s: its containers are left running", w.terms.Node, w.a.opts.Name)
}

func (w *worker) anyRunning() bool {
	for _, t := range w.containers {
		if t.observed.stage == running {
			return true
		}
	}
	return false
}

// reportGone reports a pod that runs here and that the API server does not know, which only a fault explains: it was deleted by force, or the
// API server has lost it. The pod has no object to record an Event of, so the node has it.
func (w *worker) reportGone() {
	if w.removed {
		return
	}
	if !w.anyRunning() {
		w.log.Warn("the pod no longer exists in the API server; removing what is left of it")
		return
	}
	grace := w.grace()
	w.log.Warn("the pod no longer exists in the API server; stopping its containers", "gracePeriod", grace)
	w.a.nodeEvent(corev1.EventTypeWarning, "OrphanedPod", fmt.Sprintf(
		"pod %s/%s (UID %s) is running and does not exist in the API server; its containers are terminated, and killed after %s", w.ref.Namespace, w.ref.Name, w.ref.UID, grace))
}
