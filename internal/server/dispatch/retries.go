package dispatch

import (
	"context"
	"sync"
	"time"
)

// retryEvery is the longest time between two checks for due refusals: another replica that noted one may be gone.
const retryEvery = time.Minute

// retries wakes the goroutine that tries refused jobs again.
type retries struct{ wake chan struct{} }

func newRetries() *retries { return &retries{wake: make(chan struct{}, 1)} }

// soon has it looked when the next one is due.
func (r *retries) soon() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// runRetries brings back refused jobs when they are due.
func (d *Dispatcher) runRetries(ctx context.Context) {
	for {
		wait := retryEvery
		next, err := d.retryRefused(ctx)
		if err != nil && ctx.Err() == nil {
			d.opt.Log.WarnContext(ctx, "trying again what GitHub has refused", "error", err)
		}
		if !next.IsZero() {
			wait = min(wait, max(time.Second, next.Sub(d.opt.Now())))
		}
		select {
		case <-ctx.Done():
			return
		case <-d.retries.wake:
		case <-d.opt.After(wait):
		}
	}
}

func (d *Dispatcher) retryRefused(ctx context.Context) (next time.Time, err error) {
	if _, frozen := d.Frozen(); frozen {
		return time.Time{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	return d.opt.Store.RetryRefused(ctx, d.labelSetsOf, d.opt.Now())
}

// labelSetsOf lists the label sets that the pool serves; nil when it is not there, or they are too many to list.
func (d *Dispatcher) labelSetsOf(ref PoolRef) []string {
	pool, ok := d.opt.Cluster.Pool(ref)
	if !ok {
		return nil
	}
	keys, _ := pool.servable()
	return keys
}

// unsure are the repositories of each account at whose address GitHub gave no certain answer since it last registered a runner of the account.
type unsure struct {
	mu sync.Mutex
	of map[int64]map[string]bool
}

// several notes one, and reports whether there are others.
func (u *unsure) several(account int64, repository string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = map[int64]map[string]bool{}
	}
	if u.of[account] == nil {
		u.of[account] = map[string]bool{}
	}
	u.of[account][repository] = true
	return len(u.of[account]) > 1
}

func (u *unsure) clear(account int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, account)
}
