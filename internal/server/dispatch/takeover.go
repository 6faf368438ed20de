package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// takeOver continues a claim that is not being minted: the answer was lost, its server died, or its mint timed
// out (CLAIM-7, CLAIM-16). A healthy pod is not burnt: under a new generation every registration that may be
// alive is removed, then one is minted again. again asks the caller to reread the row.
func (d *Dispatcher) takeOver(ctx context.Context, claim Claim, sequence int64) (answer Answer, again bool, err error) {
	if d.mintSlots.reserve(claim.Account, 1) == 0 {
		return Answer{Reply: ReplyRetry, RetryAfter: d.retryAfter(claim)}, false, nil
	}
	release := d.slot(claim.Account.ID)
	defer release()
	now := d.opt.Now()
	next := NextGeneration(claim.Generation, now)
	won, err := d.opt.Store.TakeOver(ctx, claim.PodUID, claim.Generation, next, sequence, now.Add(2*d.opt.MintTimeout), now)
	if err != nil {
		return Answer{}, false, fmt.Errorf("taking over the claim of pod %s: %w", claim.PodName, err)
	}
	if !won {
		return Answer{}, true, nil
	}
	claim.Generation = next
	defer d.recheckDeleted(claim.PodUID)
	// From here on the outcome is recorded even if the poller hangs up.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.opt.MintTimeout)
	defer cancel()
	switch err := d.removeRegistrations(detached, claim); {
	case errors.Is(err, fleet.ErrRunnerBusy):
		// It is busy: the configuration did arrive. This request is from a poller that should not be asking.
		return d.arrived(detached, claim)
	case err != nil:
		d.opt.Log.WarnContext(ctx, "taking over a claim", "pod", claim.PodName, "error", err)
		d.removalFailed(claim, err)
		return Answer{Reply: ReplyRetry, RetryAfter: d.retryAfter(claim)}, false, nil
	}
	answer, err = d.remint(detached, claim, release)
	return answer, false, err
}

// removalFailed delays no other claim of the account because of a registration that cannot be removed, unless the answer is about the
// account.
func (d *Dispatcher) removalFailed(claim Claim, err error) {
	pool, _ := d.opt.Cluster.Pool(PoolRef{claim.Namespace, claim.Pool})
	var limited *fleet.RateLimitedError
	if errors.As(err, &limited) && limited.Resource != fleet.ResourceRepository || fleet.RefusedBy(err, scopeOf(pool, claim)) == fleet.RefusedAccount {
		d.mintSlots.minted(claim.Account, err)
		d.endLeaseDetached(claim)
		return
	}
	// The lease ends on its own: it is what this claim waits.
}

func (d *Dispatcher) arrived(ctx context.Context, claim Claim) (Answer, bool, error) {
	if _, err := d.opt.Store.Acknowledge(ctx, claim.PodUID, claim.Generation, d.opt.Now()); err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, false, fmt.Errorf("acknowledging for pod %s: %w", claim.PodName, err)
	}
	d.later(func(ctx context.Context) { d.noteOwner(ctx, claim.PodUID, claim.Account) })
	return Answer{Reply: ReplyGone}, false, nil
}

func (d *Dispatcher) remint(ctx context.Context, claim Claim, release func()) (Answer, error) {
	name, err := runnerpod.RunnerName(claim.PodUID, claim.Generation)
	if err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, fmt.Errorf("naming a runner: %w", err)
	}
	pool, _ := d.opt.Cluster.Pool(PoolRef{claim.Namespace, claim.Pool})
	won, err := d.opt.Store.Intend(ctx, claim.PodUID, claim.Generation, name, scopeOf(pool, claim), d.opt.Now())
	if err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, fmt.Errorf("writing down the name of a mint: %w", err)
	}
	if !won {
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, nil
	}
	faultpoint.Reached(faultpoint.MintIntended)
	claim.RunnerName = name
	return d.mint(ctx, claim, release)
}

// removeRegistrations proves every registration of the pod gone that is older than the caller's generation, or fails. A
// caller that was overtaken touches nothing of its successor's (CLAIM-15), and what it does next is void. ErrRunnerBusy means that one of them runs
// a job; every other error that nothing is known and the claim stays (EXCL-6).
func (d *Dispatcher) removeRegistrations(ctx context.Context, claim Claim) error {
	registrations, err := d.opt.Store.Registrations(ctx, claim.PodUID, claim.Generation)
	if err != nil {
		return fmt.Errorf("reading the registrations of pod %s: %w", claim.PodName, err)
	}
	for _, r := range registrations {
		err := d.removeRegistration(ctx, claim.Account, r)
		note := d.opt.Store.RegistrationGone
		if errors.Is(err, errUnfound) {
			note, err = d.opt.Store.RegistrationUnfound, nil
		}
		if err != nil {
			return fmt.Errorf("removing runner %s: %w", r.Name, err)
		}
		if err := note(ctx, r.Name, d.opt.Now()); err != nil {
			return fmt.Errorf("noting that runner %s is gone: %w", r.Name, err)
		}
	}
	return nil
}

// errUnfound: GitHub shows no registration of that name. Its mint was never answered; its configuration was never
// received.
var errUnfound = errors.New("GitHub shows no such runner")

func (d *Dispatcher) removeRegistration(ctx context.Context, account Account, r Registration) error {
	id := r.RunnerID
	if id == 0 { // its mint was never answered: it is found by the name that was written down before
		found, err := d.opt.Forge.FindRunner(ctx, account.InstallationID, r.Scope, r.Name)
		if errors.Is(err, fleet.ErrNotFound) {
			return errUnfound
		}
		if err != nil {
			return err
		}
		id = found.ID
	}
	answer := d.opt.Forge.RemoveRunner(ctx, account.InstallationID, r.Scope, id)
	if answer == nil {
		faultpoint.Reached(faultpoint.RegistrationRemoved)
	}
	proof := fleet.ProveRemoval(answer, nil)
	var read fleet.ScopeRead
	if proof == fleet.NeedsScopeRead {
		read = d.readScope(ctx, account, r, answer)
		proof = fleet.ProveRemoval(answer, &read)
	}
	switch {
	case proof == fleet.ProvenGone:
		return nil
	case proof == fleet.ProvenBusy:
		return fleet.ErrRunnerBusy
	case read.Err != nil:
		return fmt.Errorf("%w, and its scope cannot be read: %w", fleet.ErrUncertain, read.Err)
	case read.Listed:
		return fmt.Errorf("%w: removal is forbidden and the runner is still listed", fleet.ErrUncertain)
	default:
		return answer
	}
}

// readScope is the control read beside a 403 or 404. A 404 is of that very id, so that it is enough that the scope can be read.
func (d *Dispatcher) readScope(ctx context.Context, account Account, r Registration, answer error) fleet.ScopeRead {
	if !errors.Is(answer, fleet.ErrForbidden) {
		return fleet.ScopeRead{Err: d.opt.Forge.ControlRead(ctx, account.InstallationID, r.Scope)}
	}
	found, err := d.opt.Forge.FindRunner(ctx, account.InstallationID, r.Scope, r.Name) // its own control read
	if errors.Is(err, fleet.ErrNotFound) {
		return fleet.ScopeRead{}
	}
	return fleet.ScopeRead{Err: err, Listed: err == nil, Busy: err == nil && found.Busy}
}

// NextGeneration is a generation that was never used, not even before a restore: the clock's microseconds, or one
// more than the last where the clock lags.
func NextGeneration(last int64, now time.Time) int64 {
	return max(last+1, now.UnixMicro())
}
