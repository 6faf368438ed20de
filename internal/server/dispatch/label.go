package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// The number and the spacing of the attempts to write the owner label, which take no longer than Options.LabelTimeout together. Giving up
// does not fail the dispatch (CLAIM-6): ownership is the row, and the runner runs without the label.
const (
	labelAttempts = 3
	labelPause    = 100 * time.Millisecond
	// maxLabelling bounds the labels that are written at a time.
	maxLabelling = 64
)

// Label writes the owner label of a pod that has just acknowledged, and returns when it is written or given up. The pod starts its runner when
// Label returns, or the pod has waited for long enough, which ends ctx: nothing writes the label after that (TEN-8).
func (d *Dispatcher) Label(ctx context.Context, pod Pod) {
	bounded, cancel := d.within(ctx, d.opt.LabelTimeout)
	defer cancel()
	claim, err := d.opt.Store.Claim(bounded, pod.UID)
	if err == nil && (!claim.State.Live() || !claim.Acknowledged) {
		return // the job is over already
	}
	if err == nil && !pod.PollerEnded { // TEN-8
		if err = d.writeLabel(bounded, pod, claim.Account); err == nil {
			d.metrics.stamps.WithLabelValues("stamped").Inc()
			return
		}
	}
	d.metrics.stamps.WithLabelValues("given_up").Inc()
	d.opt.Log.WarnContext(ctx, "writing the owner label failed; the runner continues without it", "pod", pod.Name, "error", err)
	if claim.State.Live() {
		d.later(func(ctx context.Context) { d.noteOwner(ctx, pod.UID, claim.Account) })
	}
}

// within bounds a context by the dispatcher's clock. What watches that clock ends with cancel.
func (d *Dispatcher) within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancelCause(ctx)
	expired := d.opt.After(timeout)
	go func() {
		select {
		case <-expired:
			cancel(context.DeadlineExceeded)
		case <-bounded.Done():
		}
	}()
	return bounded, func() { cancel(context.Canceled) }
}

func (d *Dispatcher) writeLabel(ctx context.Context, pod Pod, owner Account) error {
	select {
	case d.labelling <- struct{}{}:
		defer func() { <-d.labelling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var err error
	for attempt := range labelAttempts {
		if attempt > 0 {
			select {
			case <-d.opt.After(labelPause):
			case <-ctx.Done():
				return err
			}
		}
		if ctx.Err() != nil { // TEN-8: the pod has stopped waiting
			return errors.Join(err, context.Cause(ctx))
		}
		faultpoint.Reached(faultpoint.BeforeStamp)
		if err = d.opt.Cluster.StampOwner(ctx, pod, owner); err == nil {
			return nil
		}
	}
	return err
}

// noteOwner writes what the pod of a live claim should say beside the label, if it does not: the owner's id, and what keeps
// autoscalers of nodes away (POOL-9). A recovery pass repeats what fails.
func (d *Dispatcher) noteOwner(ctx context.Context, podUID string, owner Account) {
	pod, ok := d.opt.Cluster.Pod(podUID)
	if !ok || pod.OwnerNoted() || !d.notes.begin(podUID, d.opt.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := d.opt.Cluster.NoteOwner(ctx, pod, owner); err != nil {
		d.notes.forget(podUID)
		d.opt.Log.WarnContext(ctx, "noting the owner of a runner", "pod", pod.Name, "error", err)
	}
}

// noteShows is how soon the watch should show a note. The same one is not written again before, although several changes
// of the pod ask for it (P5).
const noteShows = 10 * time.Second

// notes remembers which pods' owners are being noted, or were a moment ago.
type notes struct {
	mu sync.Mutex
	at map[string]time.Time // by pod UID
}

// begin reports whether the pod's owner must be written now.
func (n *notes) begin(podUID string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil {
		n.at = map[string]time.Time{}
	}
	if at, known := n.at[podUID]; known && now.Before(at.Add(noteShows)) {
		return false
	}
	n.at[podUID] = now
	return true
}

// forget lets the owner be noted again at once: it failed, or the pod is gone.
func (n *notes) forget(podUID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.at, podUID)
}
