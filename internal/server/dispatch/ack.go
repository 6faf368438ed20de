package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Acknowledge records that the pod has staged the configuration of that generation; false when a later answer has
// replaced it. The owner label is written only after it, by Label: until here the idle pods' network policy is the pod's
// only way to its answer (CLAIM-6).
func (d *Dispatcher) Acknowledge(ctx context.Context, pod Pod, generation int64) (bool, error) {
	faultpoint.Reached(faultpoint.AckReceived)
	won, err := d.opt.Store.Acknowledge(ctx, pod.UID, generation, d.opt.Now())
	if err != nil {
		return false, fmt.Errorf("acknowledging for pod %s: %w", pod.Name, err)
	}
	if won {
		faultpoint.Reached(faultpoint.AckRecorded)
	}
	return won, nil
}

// PodChanged handles each change of a runner pod that the watch shows. A poller that has exited 0 is an acknowledgement too: its answer is
// staged, and it never asks again. By then its runner may have started, so the pod gets no label (TEN-8).
func (d *Dispatcher) PodChanged(pod Pod) {
	if pod.Deleting {
		d.ClaimChanged(pod.UID) // a waiting poll of it is answered 410 at once
		d.podDeleted(pod)
	}
	if !pod.PollerEnded || pod.OwnerNoted() {
		return
	}
	d.later(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if _, err := d.opt.Store.AcknowledgeTermination(ctx, pod.UID, d.opt.Now()); err != nil {
			d.opt.Log.WarnContext(ctx, "acknowledging by termination", "pod", pod.Name, "error", err)
			return
		}
		claim, err := d.opt.Store.Claim(ctx, pod.UID)
		if err != nil {
			d.opt.Log.WarnContext(ctx, "reading a claim", "pod", pod.Name, "error", err)
			return
		}
		if claim.State.Live() && claim.Acknowledged {
			d.noteOwner(ctx, pod.UID, claim.Account)
		}
	})
}
