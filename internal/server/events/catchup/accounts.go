package catchup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	// together is how many accounts are processed concurrently: one that GitHub is slow to answer for delays no other.
	together = 8
	// patience is how long a pass keeps asking GitHub; the rest of its timeout is for what it writes.
	patience = 20 * time.Second
	// turnLasts is how long an account's turn lasts. What is left of its backlog waits until every other account has had a turn (TEN-11).
	turnLasts = 3 * time.Second
	// accountsAtOnce bounds the accounts whose items are read of the ledger at a time.
	accountsAtOnce = 200
	// itemsAtOnce bounds what is read of one account's backlog at a time.
	itemsAtOnce = 25
)

var (
	// errLeave: nothing more can be asked for this account in this run. It is no failure.
	errLeave = errors.New("the account is left for the next run")
	// errTurn: the account's turn is over; it gets another one if there is time. It is no failure.
	errTurn = errors.New("the account's turn is over")
)

// turn is the time that an account has before it is another one's turn. The zero value does not end.
type turn struct{ over <-chan struct{} }

func (t turn) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// backlog is what a pass works off, account by account.
type backlog[T any] struct {
	ledger  QueueLedger
	due     func(ctx context.Context, accounts []int64) ([]T, error) // itemsAtOnce of each, in the accounts' order
	account func(T) int64
	do      func(context.Context, turn, T) error
}

// workOff gives each account a turn, beginning behind the given one, and further turns to those with more to do while there
// is time. It returns behind which account the next pass begins.
func (b backlog[T]) workOff(ctx context.Context, from int64) (next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	next, more, err := b.goRound(ctx, from)
	for err == nil && len(more) > 0 && ctx.Err() == nil {
		n := min(accountsAtOnce, len(more))
		var had turns
		had, err = b.letIn(ctx, more[:n])
		more = append(more[n:], had.more...)
	}
	return next, ended(ctx, err)
}

// goRound gives each account one turn. It returns behind which account it stopped, and which have more to do.
func (b backlog[T]) goRound(ctx context.Context, from int64) (after int64, more []int64, err error) {
	after = from
	for last := int64(math.MaxInt64); ctx.Err() == nil; {
		accounts, err := b.ledger.AccountsAfter(ctx, after, accountsAtOnce)
		if err != nil {
			return after, nil, fmt.Errorf("reading which accounts there are: %w", err)
		}
		atEnd := len(accounts) < accountsAtOnce
		accounts = slices.DeleteFunc(accounts, func(id int64) bool { return id > last })
		if len(accounts) > 0 {
			had, err := b.letIn(ctx, accounts)
			more = append(more, had.more...)
			after = accounts[len(accounts)-1] // RECV-5: also when it failed, so that the others are first the next time
			if had.unbegun != 0 {
				after = had.unbegun - 1
			}
			if err != nil || had.unbegun != 0 {
				return after, nil, err
			}
		}
		switch {
		case atEnd && from == 0, last != math.MaxInt64 && (atEnd || after >= last || len(accounts) < accountsAtOnce):
			return from, more, nil
		case atEnd: // what is left is before the beginning
			after, last = 0, from
		}
	}
	return after, more, nil
}

// letIn gives these accounts a turn.
func (b backlog[T]) letIn(ctx context.Context, accounts []int64) (turns, error) {
	list, err := b.due(ctx, accounts)
	if err != nil {
		return turns{}, err
	}
	counts := map[int64]int{}
	for _, item := range list {
		counts[b.account(item)]++
	}
	had, err := byAccount(ctx, turnLasts, list, b.account, b.do)
	for id, count := range counts {
		if count == itemsAtOnce && !slices.Contains(had.left, id) && !slices.Contains(had.more, id) {
			had.more = append(had.more, id)
		}
	}
	slices.Sort(had.more)
	return had, err
}

// turns is what has come of accounts' turns.
type turns struct {
	left    []int64 // until the next run
	more    []int64 // whose turn was over before their items
	unbegun int64   // the first whose turn did not come; zero: none
}

// byAccount processes the items of each account one after the other, for that long, and several accounts concurrently. The error is the first
// of the ledger.
func byAccount[T any](
	ctx context.Context, lasts time.Duration, items []T, account func(T) int64, do func(context.Context, turn, T) error,
) (turns, error) {
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
		had   turns
		first error
		wait  sync.WaitGroup
		slots = make(chan struct{}, together)
	)
	for _, id := range order {
		slots <- struct{}{}
		if ctx.Err() != nil {
			had.unbegun = id
			break
		}
		wait.Go(func() {
			defer func() { <-slots }()
			err := takeTurn(ctx, lasts, groups[id], do)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
			case errors.Is(err, errTurn) && !errors.Is(err, errStore):
				had.more = append(had.more, id)
			default:
				had.left = append(had.left, id)
				if first == nil && errors.Is(err, errStore) {
					first = err
				}
			}
		})
	}
	wait.Wait()
	return had, first
}

// takeTurn processes at least one item, however long that takes.
func takeTurn[T any](ctx context.Context, lasts time.Duration, items []T, do func(context.Context, turn, T) error) error {
	lasting, end := context.WithTimeout(ctx, lasts)
	defer end()
	t := turn{over: lasting.Done()}
	for i, item := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && t.ended() {
			return errTurn
		}
		if err := do(ctx, t, item); err != nil {
			return err
		}
	}
	return nil
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
