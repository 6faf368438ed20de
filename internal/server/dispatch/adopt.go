package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Adoption is a runner that GitHub named in in_progress while no live claim explains it.
type Adoption struct {
	RunnerName string
	RunnerID   int64
	PodUID     string
	Account    Account
	JobID      int64
	Scope      fleet.Scope
	Attempts   int64
}

// MaxAdoptions bounds how many adoptions are taken at once.
const MaxAdoptions = 20

// How often an adoption is tried while GitHub gives no certain answer, and for how long.
const (
	adoptionEvery    = 10 * time.Second
	adoptionAttempts = 60
)

func (d *Dispatcher) runAdoptions(ctx context.Context) {
	for {
		more, err := d.adoptDue(ctx)
		if err != nil && ctx.Err() == nil {
			d.opt.Log.ErrorContext(ctx, "adopting runners", "error", err)
		}
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-d.adoptions:
		case <-d.opt.After(adoptionEvery):
		}
	}
}

// adoptDue starts what is due and reports whether there may be more. It waits for none of them: an installation that
// does not answer must not keep another's runner from being seen busy.
func (d *Dispatcher) adoptDue(ctx context.Context) (more bool, err error) {
	now := d.opt.Now()
	due, err := d.opt.Store.DueAdoptions(ctx, now, now.Add(adoptionEvery))
	if err != nil {
		return false, fmt.Errorf("reading adoptions: %w", err)
	}
	for _, a := range due {
		select {
		case d.adopting <- struct{}{}:
		case <-ctx.Done():
			return false, ctx.Err()
		}
		d.running.Go(func() {
			defer func() { <-d.adopting }()
			d.decideAdoption(ctx, a)
		})
	}
	return len(due) == MaxAdoptions, nil
}

func (d *Dispatcher) decideAdoption(ctx context.Context, a Adoption) {
	outcome, done := d.adopt(ctx, a)
	d.metrics.adoptions.WithLabelValues(outcome).Inc()
	if !done && a.Attempts < adoptionAttempts {
		return
	}
	if err := d.opt.Store.CloseAdoption(ctx, a.RunnerName); err != nil && ctx.Err() == nil {
		d.opt.Log.WarnContext(ctx, "closing an adoption", "runner", a.RunnerName, "error", err)
	}
}

// adopt makes a pod busy again when GitHub confirms that its runner runs a job now; a late message about a finished
// runner revives no claim (CLAIM-13).
func (d *Dispatcher) adopt(ctx context.Context, a Adoption) (outcome string, done bool) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.MintTimeout)
	defer cancel()
	runner, err := d.opt.Forge.FindRunner(ctx, a.Account.InstallationID, a.Scope, a.RunnerName)
	if errors.Is(err, fleet.ErrNotFound) {
		return "finished", true
	}
	if err != nil {
		d.opt.Log.WarnContext(ctx, "confirming a runner", "runner", a.RunnerName, "error", err)
		return "unknown", false
	}
	if !runner.Busy { // GitHub's flag lags: ask again
		return "idle", false
	}
	pod, ok := d.opt.Cluster.Pod(a.PodUID)
	if !ok {
		return "no_pod", false
	}
	pool, _ := d.opt.Cluster.Pool(pod.Pool)
	adopted, err := d.opt.Store.Adopt(ctx, a, pod, pool, d.opt.Now())
	if errors.Is(err, ErrForeignRunner) {
		d.opt.Log.WarnContext(ctx, "a runner was not adopted", "runner", a.RunnerName, "account", a.Account.Login, "pod", pod.Name, "error", err)
		return "foreign", true
	}
	if err != nil {
		d.opt.Log.WarnContext(ctx, "adopting a runner", "runner", a.RunnerName, "error", err)
		return "failed", false
	}
	if !adopted {
		return "ended", true
	}
	d.opt.Log.InfoContext(ctx, "adopted a runner that runs a job without a live claim",
		"runner", a.RunnerName, "pod", pod.Name, "job", a.JobID)
	d.later(func(ctx context.Context) { d.noteOwner(ctx, pod.UID, a.Account) })
	d.ClaimChanged(pod.UID)
	return "adopted", true
}

// sweepEvery is how often projections and forgotten rows are corrected; events do it at once.
const sweepEvery = time.Minute

// runSweep repeats what an event may have missed while this replica was away.
func (d *Dispatcher) runSweep(ctx context.Context) {
	for {
		for _, pod := range d.opt.Cluster.Pods() {
			if pod.PollerEnded && !pod.OwnerNoted() {
				d.PodChanged(pod)
			}
		}
		d.forgetEnded(ctx)
		select {
		case <-ctx.Done():
			return
		case <-d.opt.After(sweepEvery):
		}
	}
}
