package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Gate reports whether the ledger is frozen after a restore: then nothing is handed out and no removal is granted (CLAIM-17).
// The statements themselves refuse it too; the gate saves the round trips. It is package epoch's Keeper.
type Gate interface {
	// Frozen gives the reason, and a channel that closes when it ends.
	Frozen() (reason string, resumed <-chan struct{}, frozen bool)
	// Suspect has it check at once whether the ledger is frozen: a statement was refused.
	Suspect()
}

// open is the gate of a dispatcher that has none.
type open struct{}

func (open) Frozen() (string, <-chan struct{}, bool) { return "", nil, false }
func (open) Suspect()                                {}

// Frozen says why nothing is handed out just now.
func (d *Dispatcher) Frozen() (reason string, frozen bool) {
	reason, _, frozen = d.opt.Gate.Frozen()
	return reason, frozen
}

// LedgerFrozen is called when a hold begins: earlier readings of the ledger are no longer trusted.
func (d *Dispatcher) LedgerFrozen() {
	d.demand.forget()
	d.peaks.forget()
	d.unserved.cached.forget()
	d.wakeAll()
}

// LedgerResumed is called when it ends: waiting polls read again.
func (d *Dispatcher) LedgerResumed() {
	d.demand.forget()
	d.peaks.forget()
	d.unserved.cached.forget()
	d.Reconnected() // what a restored ledger has may be other label sets and other jobs
}

// awaitOpen holds a poll while the ledger is frozen; false: its time is over.
func (d *Dispatcher) awaitOpen(ctx context.Context, over <-chan time.Time) (bool, error) {
	_, resumed, frozen := d.opt.Gate.Frozen()
	if !frozen {
		return true, nil
	}
	select {
	case <-resumed:
		return true, nil
	case <-over:
	case <-d.runCtx.Done():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// unknownAll answers for pods while the ledger is frozen: unknown deletes nothing (EXCL-3).
func unknownAll(pods []Pod, reason string) []runnerapi.RetireAnswer {
	answers := make([]runnerapi.RetireAnswer, len(pods))
	for i, pod := range pods {
		answers[i] = runnerapi.RetireAnswer{UID: pod.UID, Verdict: runnerapi.Unknown, Reason: reason}
	}
	return answers
}

// retireRows asks the ledger about pods, unless it is frozen; then there are answers, and no rows.
func (d *Dispatcher) retireRows(ctx context.Context, pods []Pod) (map[string]Claim, []runnerapi.RetireAnswer, error) {
	if reason, frozen := d.Frozen(); frozen {
		return nil, d.frozenAnswers(pods, reason), nil
	}
	rows, err := d.opt.Store.Retire(ctx, pods, d.opt.Now())
	if errors.Is(err, fleet.ErrLedgerFrozen) {
		d.opt.Gate.Suspect()
		return nil, d.frozenAnswers(pods, err.Error()), nil
	}
	return rows, nil, err
}

func (d *Dispatcher) frozenAnswers(pods []Pod, reason string) []runnerapi.RetireAnswer {
	d.metrics.retires.WithLabelValues(string(runnerapi.Unknown)).Add(float64(len(pods)))
	return unknownAll(pods, reason)
}

// notFrozen is an error while the ledger is frozen.
func (d *Dispatcher) notFrozen() error {
	if reason, frozen := d.Frozen(); frozen {
		return fmt.Errorf("%w: %s", fleet.ErrLedgerFrozen, reason)
	}
	return nil
}

// Backoff is until when this replica asks GitHub to register no runner for the account (CLAIM-11, CLAIM-14); zero when
// there is none. limited says that the cause is a rate limit, and not failures.
func (d *Dispatcher) Backoff(account Account) (until time.Time, limited bool) {
	return d.mintSlots.resume(account)
}
