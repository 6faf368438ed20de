package ledger

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// evictedAtOnce bounds how many lanes without a job a job is made room by.
const evictedAtOnce = 100

// returnedAtOnce bounds how many jobs that are held for their label set one event brings back to a lane, and to how many lanes: more than the one
// that it may add.
const returnedAtOnce = 10

// feedLane puts a job into its lane that had its place there before, however many lanes its account has.
func feedLane(ctx context.Context, q *sqlcgen.Queries, key string, accountID int64, queuedAt time.Time) error {
	_, _, err := feed(ctx, q, sqlcgen.FeedLaneParams{LabelKey: key, AccountID: accountID, QueuedAt: queuedAt})
	return err
}

// feed puts a job into its lane, and before it the oldest of the jobs that are held though they have this lane now (TEN-2): a few, because an event
// waits for it. more says that further ones may be held. fed is false if the account gets no further lane.
func feed(ctx context.Context, q *sqlcgen.Queries, lane sqlcgen.FeedLaneParams) (fed, more bool, err error) {
	holds, fed, err := found(q.FeedLane(ctx, lane))
	if err != nil || !holds {
		return fed, false, err
	}
	back, err := q.ReturnToLane(ctx, lane.LabelKey, lane.AccountID, returnedAtOnce)
	return true, back == returnedAtOnce, err
}

// fullFor is how long events search no further room for an account that had none: a search reads all its lanes, in a webhook's transaction (TEN-1).
const fullFor = 5 * time.Second

// mostFull bounds the accounts that are remembered. One that is forgotten is searched once more.
const mostFull = 10_000

// fullAccounts are those that had no room for a further lane a moment ago.
type fullAccounts struct {
	now   func() time.Time
	mu    sync.Mutex
	until map[int64]time.Time
}

func (f *fullAccounts) has(accountID int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until[accountID].After(f.now())
}

// note keeps the outcome of a search.
func (f *fullAccounts) note(accountID int64, full bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, accountID)
	if !full {
		return
	}
	if f.until == nil || len(f.until) >= mostFull {
		f.until = map[int64]time.Time{}
	}
	f.until[accountID] = f.now().Add(fullFor)
}

// parkEmptied parks those of the lanes that have no queued job left. It locks them all, so a transaction that also locks an account's limits
// does that before.
func parkEmptied(ctx context.Context, q *sqlcgen.Queries, lanes ...lane) error {
	if len(lanes) == 0 {
		return nil
	}
	keys, accounts := make([]string, len(lanes)), make([]int64, len(lanes))
	for i, l := range lanes {
		keys[i], accounts[i] = l.key, l.account
	}
	if err := q.LockLanes(ctx, keys, accounts); err != nil {
		return err
	}
	return q.ParkIfEmpty(ctx, keys, accounts)
}

// recountedAtOnce bounds one recount of lanes.
const recountedAtOnce = 200

// RecountLanes corrects lanes whose number of live claims is wrong, up to a bound, and returns how many. The number refuses nothing, but a
// lane that seems to have a claim is kept forever, and an account that seems to have many has its turn last. It should never be wrong:
// recovery, a restore or an administrator at the database may cause it.
func (s *Store) RecountLanes(ctx context.Context) (int64, error) {
	var put int64
	drifted, err := s.queries().DriftedLanes(ctx, recountedAtOnce)
	if err != nil || len(drifted) == 0 {
		return 0, err
	}
	keys, accounts := make([]string, len(drifted)), make([]int64, len(drifted))
	for i, lane := range drifted {
		keys[i], accounts[i] = lane.LabelKey, lane.AccountID
	}
	err = s.inTx(ctx, "recounting lanes", func(q *sqlcgen.Queries) error {
		if err := q.LockLanes(ctx, keys, accounts); err != nil {
			return err
		}
		put, err = q.RecountLanes(ctx, keys, accounts)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("counting the claims of %d lanes: %w", len(drifted), err)
	}
	return put, nil
}

// UnparkUncharged unparks lanes at the limit of an account without charged claims, up to a bound: the pass makes up for freed capacity
// without an event, as beside a replica of an earlier release, which does not know that a stopped pod frees room.
func (s *Store) UnparkUncharged(ctx context.Context) error {
	return s.inTx(ctx, "freeing lanes at their limit", func(q *sqlcgen.Queries) error {
		keys, err := q.UnparkUncharged(ctx, recountedAtOnce)
		if err != nil || len(keys) == 0 {
			return err
		}
		return q.NotifyWork(ctx, "")
	})
}
