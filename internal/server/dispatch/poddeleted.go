package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// podDeleted handles each change of a pod that is being deleted. If its claim is live and GitHub has not named its runner, recovery checks
// it at once: nothing in the pod signals a runner that has its configuration, and its registration must be removed (EXCL-8).
func (d *Dispatcher) podDeleted(pod Pod) {
	if d.opt.CheckPod == nil || !d.deletedPods.begin(pod.UID) {
		return
	}
	if !d.later(func(run context.Context) {
		ctx, cancel := context.WithTimeout(run, 10*time.Second)
		defer cancel()
		claim, err := d.opt.Store.Claim(ctx, pod.UID)
		if err == nil && claim.State.Live() && claim.State != fleet.ClaimExecuting {
			if wait := claim.LeaseUntil.Sub(d.opt.Now()); claim.Leased(d.opt.Now()) {
				d.recheckAfter(run, pod.UID, wait+afterLease)
			}
			err = d.opt.CheckPod(ctx, pod.UID)
		}
		if err != nil { // the next pass sees it
			d.deletedPods.forget(pod.UID)
			d.opt.Log.WarnContext(ctx, "requesting a check of a pod that is being deleted", "pod", pod.Name, "error", err)
		}
	}) {
		d.deletedPods.forget(pod.UID) // too much is waiting: the next change of the pod requests it, or the next pass sees it
	}
}

// recheckDeleted requests another check of a pod that is being deleted, at the end of a lease: a check during the lease does nothing, and no
// change of the pod may follow (EXCL-8).
func (d *Dispatcher) recheckDeleted(podUID string) {
	if pod, ok := d.opt.Cluster.Pod(podUID); ok && pod.Deleting {
		d.deletedPods.forget(podUID)
		d.podDeleted(pod)
	}
}

// afterLease is how long after a lease the check comes: the replica that checks has a clock of its own.
const afterLease = time.Second

// recheckAfter rechecks a pod after a lease that may end on its own: GitHub's response was uncertain, or the replica that took it is gone.
func (d *Dispatcher) recheckAfter(run context.Context, podUID string, wait time.Duration) {
	d.running.Go(func() { // by a task: Run waits
		select {
		case <-run.Done():
		case <-d.opt.After(wait):
			d.recheckDeleted(podUID)
		}
	})
}

// deletedPods remembers which pods that are being deleted were checked.
type deletedPods struct {
	mu   sync.Mutex
	seen map[string]bool // by pod UID
}

// begin reports whether the pod is new.
func (g *deletedPods) begin(podUID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen[podUID] {
		return false
	}
	if g.seen == nil {
		g.seen = map[string]bool{}
	}
	g.seen[podUID] = true
	return true
}

// forget is for a pod that is gone, or whose check has failed or must be repeated.
func (g *deletedPods) forget(podUID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.seen, podUID)
}
