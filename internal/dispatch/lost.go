package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dispatchapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// A question about lost pods may cost requests to GitHub, and whoever asks waits for the answer: so many claims are
// examined at once, for so long. What is left out, or is not finished, is unknown, and asked about again.
const (
	maxExamined    = 8
	examineTimeout = 8 * time.Second
)

// ProofRegistrationsGone is how a claim ends whose pod cannot be asked any more.
const ProofRegistrationsGone = "GitHub has confirmed that none of its registrations exists any more"

// RetireLost is Retire for pods that cannot be asked any more: their node is gone, or recovery wants them removed. What
// such a pod shows proves nothing, so a live claim of it is ended only when GitHub confirms that every registration minted
// for it is gone (POOL-7, EXCL-6). A grant comes with the proof that the ledger holds, where it holds one.
func (d *Dispatcher) RetireLost(ctx context.Context, pods []Pod) ([]dispatchapi.RetireAnswer, error) {
	rows, err := d.opt.Store.Retire(ctx, pods, d.opt.Now())
	if err != nil {
		return nil, fmt.Errorf("retiring %d lost pods: %w", len(pods), err)
	}
	answers := make([]dispatchapi.RetireAnswer, len(pods))
	var live []int
	for i, pod := range pods {
		row := rows[pod.UID]
		answers[i] = lostAnswer(pod.UID, row)
		if row.State.Live() {
			answers[i].Verdict = dispatchapi.Unknown // until it is examined
			live = append(live, i)
		}
	}
	d.examine(ctx, pods, live, answers)
	for _, answer := range answers {
		d.metrics.retires.WithLabelValues(string(answer.Verdict)).Inc()
		if answer.Verdict == dispatchapi.Granted {
			d.ClaimChanged(answer.UID)
		}
	}
	return answers, nil
}

func lostAnswer(uid string, row Claim) dispatchapi.RetireAnswer {
	answer := dispatchapi.RetireAnswer{UID: uid, State: string(row.State), Verdict: RetireVerdict(row.State), Owner: row.Account.Login}
	if answer.Verdict == dispatchapi.Granted {
		answer.Owner, answer.Proof = "", row.Proof
	}
	return answer
}

// examine answers for some of the live ones: others at each question, so that a few that nobody can tell about do not
// stand before the rest for ever.
func (d *Dispatcher) examine(ctx context.Context, pods []Pod, live []int, answers []dispatchapi.RetireAnswer) {
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	n := min(len(live), maxExamined)
	first := int((d.examined.Add(uint64(n)) - uint64(n)) % uint64(len(live)))
	var wait sync.WaitGroup
	for k := range n {
		i := live[(first+k)%len(live)]
		wait.Go(func() { answers[i] = d.releaseLost(ctx, pods[i]) })
	}
	wait.Wait()
}

// releaseLost ends the claim of a lost pod if its registrations are proven gone: under a generation of its own, so that
// whatever another replica does with the claim meanwhile is void, or makes this void (CLAIM-15).
func (d *Dispatcher) releaseLost(ctx context.Context, pod Pod) dispatchapi.RetireAnswer {
	claim, err := d.opt.Store.Claim(ctx, pod.UID)
	if err != nil {
		d.opt.Log.WarnContext(ctx, "reading the claim of a lost pod", "pod", pod.Name, "error", err)
		return dispatchapi.RetireAnswer{UID: pod.UID, Verdict: dispatchapi.Unknown}
	}
	answer := lostAnswer(pod.UID, claim)
	if !claim.State.Live() {
		return answer // it has ended meanwhile
	}
	answer.Verdict = dispatchapi.Unknown
	now := d.opt.Now()
	next := NextGeneration(claim.Generation, now)
	held, err := d.opt.Store.TakeForRelease(ctx, claim.PodUID, claim.Generation, next, now.Add(2*examineTimeout), now)
	if err != nil || !held { // EXCL-3; a replica is minting for it, or was faster
		d.noteUnreleased(ctx, pod, err)
		return answer
	}
	claim.Generation = next
	err = d.removeRegistrations(ctx, claim)
	if err == nil {
		return d.releaseProven(ctx, claim, answer)
	}
	if errors.Is(err, fleet.ErrRunnerBusy) {
		answer.Verdict = dispatchapi.Busy // EXCL-6: GitHub's 422 keeps it
	} else {
		d.noteUnreleased(ctx, pod, err)
	}
	d.endLeaseDetached(claim)
	return answer
}

func (d *Dispatcher) releaseProven(ctx context.Context, claim Claim, answer dispatchapi.RetireAnswer) dispatchapi.RetireAnswer {
	released, err := d.opt.Store.Release(ctx, claim.PodUID, claim.Generation, ProofRegistrationsGone, d.opt.Now())
	if err != nil {
		d.opt.Log.WarnContext(ctx, "releasing the claim of a lost pod", "pod", claim.PodName, "error", err)
		d.endLeaseDetached(claim)
		return answer
	}
	if released {
		d.opt.Log.InfoContext(ctx, "released the claim of a lost pod", "pod", claim.PodName, "account", claim.Account.Login,
			"job", claim.JobID, "state", claim.State)
		d.wakeAll()
		return dispatchapi.RetireAnswer{
			UID: claim.PodUID, Verdict: dispatchapi.Granted, State: string(fleet.ClaimSpent), Proof: ProofRegistrationsGone,
		}
	}
	// Something has happened to it meanwhile: what the row says now counts, and a live one is asked about again.
	now, err := d.opt.Store.Claim(ctx, claim.PodUID)
	if err == nil && !now.State.Live() {
		return lostAnswer(claim.PodUID, now)
	}
	d.endLeaseDetached(claim)
	return answer
}

func (d *Dispatcher) noteUnreleased(ctx context.Context, pod Pod, err error) {
	if err != nil {
		d.opt.Log.WarnContext(ctx, "a lost pod keeps its claim: nobody can say yet that its runner is gone", "pod", pod.Name, "error", err)
	}
}
