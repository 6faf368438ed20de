package catchup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	// together is how many accounts are processed concurrently: one that GitHub is slow to answer for delays no other.
	together = 8
	// patience is how long a pass keeps asking GitHub; the rest of its timeout is for what it writes.
	patience = 20 * time.Second
)

// errLeave: nothing more can be asked for this account in this run. It is no failure.
var errLeave = errors.New("the account is left for the next run")

// byAccount processes the items of each account one after the other, and several accounts concurrently. It returns the
// accounts that are left for the next run, and the first error of the ledger.
func byAccount[T any](ctx context.Context, items []T, account func(T) int64, do func(context.Context, T) error) ([]int64, error) {
	var order []int64
	groups := map[int64][]T{}
	for _, item := range items {
		id := account(item)
		if _, known := groups[id]; !known {
			order = append(order, id)
		}
		groups[id] = append(groups[id], item)
	}
	var (
		mu    sync.Mutex
		left  []int64
		first error
		wait  sync.WaitGroup
		slots = make(chan struct{}, together)
	)
	for _, id := range order {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			for _, item := range groups[id] {
				err := ctx.Err()
				if err == nil {
					err = do(ctx, item)
				}
				if err == nil {
					continue
				}
				mu.Lock()
				defer mu.Unlock()
				left = append(left, id)
				if first == nil && errors.Is(err, errStore) {
					first = err
				}
				return
			}
		})
	}
	wait.Wait()
	return left, first
}

// over reports whether a run has used up its time, or is to end.
func over(ctx context.Context) bool { return ctx.Err() != nil }

// limited: GitHub has refused before doing anything, and will until a known time.
func limited(err error) bool {
	var refused *fleet.RateLimitedError
	return errors.As(err, &refused)
}

// leaveIfLimited: a limit ends the account's turn where it stands; anything else is the item's own trouble.
func leaveIfLimited(err error) error {
	if limited(err) {
		return errLeave
	}
	return nil
}

// unanswered is errLeave when the next call for that account would fare no better.
func unanswered(err error) error {
	if limited(err) || errors.Is(err, fleet.ErrUncertain) {
		return errLeave
	}
	return nil
}
