package dispatch

import (
	"context"
	"time"
)

// Matchers is how many pools have a matcher at this replica.
func (d *Dispatcher) Matchers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.matchers)
}

// Arrived is how many label sets wait to be matched to pools.
func (d *Dispatcher) Arrived() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.router.arrived)
}

// Heard reports whether the replica knows of that label set, as far as a pool serves it.
func (d *Dispatcher) Heard(labelKey string) bool {
	if !d.servesNow(labelKey) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.router.valid || d.router.known[labelKey] || d.router.arrived[labelKey]
}

// Minted notes the outcome of a request to GitHub.
func (m *MintLimiter) Minted(account Account, err error) { m.slots.minted(account, err) }

// Unused takes slots back that no claim was made with, and reports whether others may have lacked them.
func (m *MintLimiter) Unused(accountID int64, slots int) bool {
	return m.slots.unused(accountID, slots)
}

// OnFreed has f called, instead of nothing, when a slot is free that an account lacked.
func (m *MintLimiter) OnFreed(f func()) { m.slots.freed = f }

// Forgive ends the account's waits.
func (m *MintLimiter) Forgive(accountID int64) { m.slots.forgive(accountID) }

// JoinedPolls is how many polls wait for work at this replica or are in a batch, and have not left.
func (d *Dispatcher) JoinedPolls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	joined := 0
	for _, m := range d.matchers {
		m.mu.Lock()
		joined += len(m.byPod)
		m.mu.Unlock()
	}
	return joined
}

// RetryRefused brings back one job of each refusal that is due.
func (d *Dispatcher) RetryRefused(ctx context.Context) (time.Time, error) { return d.retryRefused(ctx) }

// Rematched is how many label sets are matched to pools now that were not matched before, or are matched again.
func (d *Dispatcher) Rematched(ctx context.Context) (int, error) {
	next, err := d.rerouteNow(ctx)
	return len(next.fresh.keys()), err
}

// Known is how many label sets the replica knows a pool for, or several.
func (d *Dispatcher) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.router.known)
}

// setReader is a ledger of which label sets are read.
type setReader struct {
	Store
	read func(start string, most int) []string
}

func (r setReader) LabelSetsFrom(_ context.Context, start string, most int32) ([]string, error) {
	return r.read(start, int(most)), nil
}

// Walked are the label sets that the pools serve, of those that read returns: so many at a time, from that one on.
func Walked(ctx context.Context, pools []Pool, atOnce int32, read func(start string, most int) []string) ([]string, error) {
	var walks []labelWalk
	for _, pool := range pools {
		walks = append(walks, walkOf(pool))
	}
	return walk(ctx, setReader{read: read}, walks, atOnce)
}
