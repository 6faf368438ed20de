package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Retire answers the controller's question whether pods may be removed. For a pod without a claim it inserts a
// retired row: that insert and a claim's are into one primary key, so that exactly one of them wins (EXCL-1). A
// retired pod that polls gets the answer that it is gone.
func (d *Dispatcher) Retire(ctx context.Context, pods []Pod) ([]runnerapi.RetireAnswer, error) {
	rows, unknown, err := d.retireRows(ctx, pods)
	if err != nil {
		return nil, fmt.Errorf("retiring %d pods: %w", len(pods), err)
	}
	if unknown != nil { // CLAIM-17
		return unknown, nil
	}
	answers := make([]runnerapi.RetireAnswer, len(pods))
	for i, pod := range pods {
		row := rows[pod.UID]
		answer := runnerapi.RetireAnswer{UID: pod.UID, State: string(row.State), Verdict: RetireVerdict(row.State)}
		if answer.Verdict == runnerapi.Busy {
			answer.Owner = row.Account.Login
		}
		answers[i] = answer
		d.metrics.retires.WithLabelValues(string(answer.Verdict)).Inc()
		if answer.Verdict == runnerapi.Granted {
			d.ClaimChanged(pod.UID)
		}
	}
	return answers, nil
}

// RetireVerdict returns the fence's answer for a claim in that state. The answer for a state that is not known is unknown (EXCL-3).
func RetireVerdict(state fleet.ClaimState) runnerapi.Verdict {
	switch {
	case state == fleet.ClaimSpent || state == fleet.ClaimRetired:
		return runnerapi.Granted
	case state.Live():
		return runnerapi.Busy // EXCL-5: a claimed pod is never retired
	default:
		return runnerapi.Unknown
	}
}

// PodStopped notes the reported end of a runner pod: its session is closed. It reports whether the pod's claim is live all
// the same: what has become of its job is not known yet.
func (d *Dispatcher) PodStopped(ctx context.Context, podUID string, endedAt time.Time, exitCode *int32) (live bool, err error) {
	if err := d.opt.Store.PodStopped(ctx, podUID, endedAt, exitCode); err != nil {
		return false, fmt.Errorf("closing the session of pod %s: %w", podUID, err)
	}
	claim, err := d.opt.Store.Claim(ctx, podUID)
	if err != nil {
		return false, fmt.Errorf("reading the claim of pod %s: %w", podUID, err)
	}
	return claim.State.Live(), nil
}

// PodGone is called for every pod that the watch shows to be gone. Its row is deleted once an uncached read proves
// that the UID no longer exists; ageing never removes one (EXCL-1).
func (d *Dispatcher) PodGone(pod Pod) {
	d.ClaimChanged(pod.UID)
	d.notes.forget(pod.UID)
	d.ended.forget(pod.UID)
	d.deletedPods.forget(pod.UID)
	d.later(func(ctx context.Context) { _ = d.forget(ctx, pod) })
}

func (d *Dispatcher) forget(ctx context.Context, pod Pod) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	gone, err := d.opt.Cluster.Gone(ctx, pod.Namespace, pod.Name, pod.UID)
	if err == nil && gone { // EXCL-1
		_, err = d.opt.Store.ForgetPod(ctx, pod.UID)
	}
	if err != nil {
		d.opt.Log.WarnContext(ctx, "forgetting a pod that has gone", "pod", pod.Name, "error", err)
	}
	return err == nil
}

// maxForgotten bounds the uncached reads of one sweep.
const maxForgotten = 100

// forgetEnded forgets the pods that disappeared while no watch ran, or before their work was known to be over, by the
// same proof as any other.
func (d *Dispatcher) forgetEnded(ctx context.Context) {
	known := []string{}
	for _, pod := range d.opt.Cluster.Pods() {
		known = append(known, pod.UID)
	}
	ended, err := d.opt.Store.Ended(ctx, known, maxForgotten)
	if err != nil {
		if ctx.Err() == nil {
			d.opt.Log.WarnContext(ctx, "listing rows whose pods may have gone", "error", err)
		}
		return
	}
	for _, pod := range ended {
		if !d.forget(ctx, pod) {
			return // the API server does not answer: the next sweep asks again
		}
	}
}
