package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Gate says whether the ledger is held after a restore: then nothing is handed out and no removal is granted (CLAIM-17). The
// statements themselves refuse it too; the gate spares everybody the asking. It is package epoch's Keeper.
type Gate interface {
	// Held gives the reason, and a channel that closes when it ends.
	Held() (reason string, resumed <-chan struct{}, held bool)
	// Suspect has it looked at once whether the ledger is held: a statement was refused.
	Suspect()
}

// open is the gate of a dispatcher that has none.
type open struct{}

func (open) Held() (string, <-chan struct{}, bool) { return "", nil, false }
func (open) Suspect()                              {}

// Held says why nothing is handed out just now.
func (d *Dispatcher) Held() (reason string, held bool) {
	reason, _, held = d.opt.Gate.Held()
	return reason, held
}

// LedgerHeld is told when a hold begins: what was read of the ledger before is not believed any more.
func (d *Dispatcher) LedgerHeld() {
	d.demand.forget()
	d.peaks.forget()
	d.wakeAll()
}

// LedgerResumed is told when it ends: whoever waits looks again.
func (d *Dispatcher) LedgerResumed() {
	d.demand.forget()
	d.peaks.forget()
	d.PoolsChanged()
	d.AdoptionRequested()
}

// awaitOpen holds a poll while the ledger is held; false: its time is over.
func (d *Dispatcher) awaitOpen(ctx context.Context, over <-chan time.Time) (bool, error) {
	_, resumed, held := d.opt.Gate.Held()
	if !held {
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

// unknownAll answers for pods while the ledger is held: unknown deletes nothing (EXCL-3).
func unknownAll(pods []Pod, reason string) []runnerapi.RetireAnswer {
	answers := make([]runnerapi.RetireAnswer, len(pods))
	for i, pod := range pods {
		answers[i] = runnerapi.RetireAnswer{UID: pod.UID, Verdict: runnerapi.Unknown, Reason: reason}
	}
	return answers
}

// retireRows asks the ledger about pods, unless it is held; then there are answers, and no rows.
func (d *Dispatcher) retireRows(ctx context.Context, pods []Pod) (map[string]Claim, []runnerapi.RetireAnswer, error) {
	if reason, held := d.Held(); held {
		return nil, d.heldAnswers(pods, reason), nil
	}
	rows, err := d.opt.Store.Retire(ctx, pods, d.opt.Now())
	if errors.Is(err, fleet.ErrLedgerHeld) {
		d.opt.Gate.Suspect()
		return nil, d.heldAnswers(pods, err.Error()), nil
	}
	return rows, nil, err
}

func (d *Dispatcher) heldAnswers(pods []Pod, reason string) []runnerapi.RetireAnswer {
	d.metrics.retires.WithLabelValues(string(runnerapi.Unknown)).Add(float64(len(pods)))
	return unknownAll(pods, reason)
}

// notHeld is an error while the ledger is held.
func (d *Dispatcher) notHeld() error {
	if reason, held := d.Held(); held {
		return fmt.Errorf("%w: %s", fleet.ErrLedgerHeld, reason)
	}
	return nil
}

// Backoff is until when this replica asks GitHub to register no runner for the account (CLAIM-11, CLAIM-14), and whether that is
// for a rate limit and not for failures; zero when nothing keeps it from that.
func (d *Dispatcher) Backoff(account Account) (until time.Time, limited bool) {
	return d.mintSlots.resume(account)
}
