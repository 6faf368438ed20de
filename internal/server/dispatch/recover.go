package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
)

// Ending is what became of a claim that was to be ended.
type Ending int

// The endings.
const (
	EndedNot           Ending = iota // nothing is known of its registrations: it stays
	EndedBusy                        // GitHub says that its runner works: it stays
	EndedByOthers                    // it was minted for, acknowledged or ended in between: what was known of it is void
	EndedSpent                       // its registrations are gone, it is over
	EndedGivenBack                   // nothing was minted for it: its row is gone, and the pod may have another job
	EndedRegistrations               // its registrations are gone, and no more than that was asked for: it stays
)

// EndClaim ends a live claim of exactly that generation, if all its registrations are proven gone (EXCL-6, CLAIM-15): its job is queued
// again unless it runs or has ended, and its account has its budget back. With giveBack a pod without a mint stays idle (CLAIM-8).
// Registrations that GitHub's lists have shown for the pod since that time are removed too, though no row knows of them: the ledger may be
// an older one. An error comes only with EndedNot.
func (d *Dispatcher) EndClaim(ctx context.Context, claim Claim, giveBack bool, since time.Time) (Ending, error) {
	claim, ending, err := d.unregister(ctx, claim, since)
	if err != nil || ending != EndedRegistrations {
		return ending, err
	}
	won := false
	ending = EndedSpent
	if giveBack && claim.State == fleet.ClaimClaimed {
		ending = EndedGivenBack
		won, err = d.opt.Store.Unclaim(ctx, claim.PodUID, claim.Generation, d.opt.Now())
	} else {
		won, err = d.opt.Store.Release(ctx, claim.PodUID, claim.Generation, ProofRegistrationsGone, d.opt.Now())
	}
	if err != nil || !won {
		d.endLeaseDetached(claim)
	}
	switch {
	case err != nil:
		return EndedNot, fmt.Errorf("ending the claim of pod %s: %w", claim.PodName, err)
	case !won:
		return EndedByOthers, nil
	}
	faultpoint.Reached(faultpoint.ClaimEnded)
	d.ClaimChanged(claim.PodUID)
	d.wakeAll()
	return ending, nil
}

// Unregister is the first half of EndClaim: a runner that waits for a job will get none from here on, and exits. The claim
// stays, and with it everything that protects the pod: a job that GitHub had given to the runner already may continue, for
// a removal that GitHub grants is no proof that there is none.
func (d *Dispatcher) Unregister(ctx context.Context, claim Claim, since time.Time) (Ending, error) {
	claim, ending, err := d.unregister(ctx, claim, since)
	if err == nil && ending == EndedRegistrations {
		d.endLeaseDetached(claim)
	}
	return ending, err
}

// unregister removes the claim's registrations under a generation of its own, which the claim has from then on, with its
// lease; EndedRegistrations says that it did. Otherwise this replica no longer has the claim.
func (d *Dispatcher) unregister(ctx context.Context, claim Claim, since time.Time) (Claim, Ending, error) {
	if err := d.notFrozen(); err != nil { // CLAIM-17
		return claim, EndedNot, err
	}
	now := d.opt.Now()
	next := NextGeneration(claim.Generation, now)
	won, err := d.opt.Store.TakeForRelease(ctx, claim.PodUID, claim.Generation, next, now.Add(2*d.opt.MintTimeout), now)
	if err != nil {
		return claim, EndedNot, fmt.Errorf("taking the claim of pod %s to end it: %w", claim.PodName, err)
	}
	if !won { // CLAIM-15
		return claim, EndedByOthers, nil
	}
	faultpoint.Reached(faultpoint.ClaimTaken)
	claim.Generation = next
	err = d.removeRegistrations(ctx, claim)
	if err == nil {
		err = d.removeUnknown(ctx, claim, since)
	}
	switch {
	case err == nil:
		return claim, EndedRegistrations, nil
	case errors.Is(err, fleet.ErrRunnerBusy):
		d.endLeaseDetached(claim)
		return claim, EndedBusy, nil // EXCL-6: GitHub's 422 keeps it
	default:
		d.endLeaseDetached(claim)
		return claim, EndedNot, fmt.Errorf("removing the registrations of pod %s: %w", claim.PodName, err)
	}
}

// removeUnknown removes what GitHub's lists show of the pod and no row may know of. Lists that cannot be read whole are no
// reason to keep a claim whose rows are all proven gone.
func (d *Dispatcher) removeUnknown(ctx context.Context, claim Claim, since time.Time) error {
	seen := d.look(ctx, []roster.Query{{
		UID: claim.PodUID, AccountID: claim.Account.ID, OwnerLabel: runnerpod.OwnerLabelValue(claim.Account.Login), Since: since,
	}})
	for _, one := range seen[claim.PodUID].Found {
		if generation, ok := runnerpod.Generation(one.Name); !ok || generation >= claim.Generation {
			continue // CLAIM-15: it is a successor's
		}
		if one.Busy {
			return fmt.Errorf("runner %s: %w", one.Name, fleet.ErrRunnerBusy)
		}
		registration := Registration{Name: one.Name, RunnerID: one.ID, Scope: one.Scope}
		if err := d.removeRegistration(ctx, accountOf(one.Owner), registration); err != nil {
			return fmt.Errorf("removing runner %s: %w", one.Name, err)
		}
	}
	return nil
}

// RetireProven retires a pod without a claim, and searches for a proof that it has no registration, which comes with
// Granted and is kept with the row. Busy: GitHub says that it is busy, and its claim is live again. A pod that was claimed
// in between is busy too, and is left alone.
func (d *Dispatcher) RetireProven(ctx context.Context, pod Pod) (runnerapi.RetireAnswer, error) {
	if err := d.notFrozen(); err != nil { // CLAIM-17
		return runnerapi.RetireAnswer{}, err
	}
	rows, err := d.opt.Store.Retire(ctx, []Pod{pod}, d.opt.Now())
	if err != nil {
		return runnerapi.RetireAnswer{}, fmt.Errorf("retiring pod %s: %w", pod.Name, err)
	}
	if row := rows[pod.UID]; row.State.Live() { // EXCL-5
		return lostAnswer(pod.UID, row), nil
	}
	answers, err := d.RetireLost(ctx, []Pod{pod})
	if err != nil {
		return runnerapi.RetireAnswer{}, err
	}
	return answers[0], nil
}

// CloseRegistrations removes at GitHub what is left of a pod without a claim, or proves it gone. An error says that
// something may be left; ErrRunnerBusy that it is busy.
func (d *Dispatcher) CloseRegistrations(ctx context.Context, podUID string, account Account) error {
	return d.removeRegistrations(ctx, Claim{PodUID: podUID, PodName: podUID, Account: account, Generation: math.MaxInt64})
}
