package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// The owner label is tried so often, so far apart; giving up does not fail the dispatch (CLAIM-6): ownership is the
// row, and a later pass projects it.
const (
	stampAttempts = 3
	stampPause    = 100 * time.Millisecond
)

// Acknowledge notes that the pod has staged the configuration of that generation; false when a later answer has
// replaced it. Only now is the owner label stamped: until here the idle pods' network policy is the pod's only way
// to hear its answer or to ask again (CLAIM-6).
func (d *Dispatcher) Acknowledge(ctx context.Context, pod Pod, generation int64) (bool, error) {
	faultpoint.Reached(faultpoint.AckReceived)
	won, err := d.opt.Store.Acknowledge(ctx, pod.UID, generation, d.opt.Now())
	if err != nil {
		return false, fmt.Errorf("acknowledging for pod %s: %w", pod.Name, err)
	}
	if !won {
		return false, nil
	}
	faultpoint.Reached(faultpoint.AckRecorded)
	claim, err := d.opt.Store.Claim(ctx, pod.UID)
	if err != nil {
		return false, fmt.Errorf("reading the claim of pod %s: %w", pod.Name, err)
	}
	d.stamp(pod.UID, claim.Account)
	return true, nil
}

// PodChanged is told of every change of a runner pod that the watch shows. A poller that has exited 0 is an
// acknowledgement too: its answer is staged and it will never ask again.
func (d *Dispatcher) PodChanged(pod Pod) {
	if pod.Deleting {
		d.ClaimChanged(pod.UID) // a waiting poll of it is answered 410 at once
		d.goes(pod)
	}
	if !pod.PollerEnded || pod.OwnerLabel != "" {
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
			d.stamp(pod.UID, claim.Account)
		}
	})
}

// stampShows is how soon the watch should show a stamp. The same stamp is not written again before: an acknowledgement and
// the end of the poller follow each other closely, and each of them asks for it (P5).
const stampShows = 10 * time.Second

// stamps remembers which pods' labels are being written, or were a moment ago.
type stamps struct {
	mu sync.Mutex
	at map[string]time.Time // by pod UID
}

// begin says whether the pod's label is to be written now.
func (s *stamps) begin(podUID string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	if at, known := s.at[podUID]; known && now.Before(at.Add(stampShows)) {
		return false
	}
	s.at[podUID] = now
	return true
}

// failed lets the label be written again at once; so does forgetting a pod that is gone.
func (s *stamps) failed(podUID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.at, podUID)
}

// stamp projects the owner onto the pod's label, in the background.
func (d *Dispatcher) stamp(podUID string, owner Account) {
	d.later(func(ctx context.Context) {
		pod, ok := d.opt.Cluster.Pod(podUID)
		if !ok || pod.OwnerLabel != "" || !d.stamps.begin(podUID, d.opt.Now()) {
			return
		}
		var err error
		for attempt := range stampAttempts {
			if attempt > 0 {
				select {
				case <-d.opt.After(stampPause):
				case <-ctx.Done():
					d.stamps.failed(podUID)
					return
				}
			}
			once, cancel := context.WithTimeout(ctx, 5*time.Second)
			faultpoint.Reached(faultpoint.BeforeStamp)
			err = d.opt.Cluster.StampOwner(once, pod, owner)
			cancel()
			if err == nil {
				d.metrics.stamps.WithLabelValues("stamped").Inc()
				return
			}
		}
		d.stamps.failed(podUID)
		d.metrics.stamps.WithLabelValues("given_up").Inc()
		d.opt.Log.WarnContext(ctx, "stamping the owner label", "pod", pod.Name, "error", err)
	})
}
