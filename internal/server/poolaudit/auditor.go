package poolaudit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Entry is one generation of a pool, and its author. At most one of Requester and Stated is set.
type Entry struct {
	Pool
	Requester string // verified by the cluster
	Stated    string // stated by the client
	Now       time.Time
}

// Store keeps the audit log, and up to which generation of each pool it goes.
type Store interface {
	// AuditedPools are the recorded generations of a namespace's pools, by UID.
	AuditedPools(ctx context.Context, namespace string) (map[string]int64, error)
	// AuditPool records the change since the recorded generation. A pool without one is recorded as it is, and a generation that is not
	// newer changes nothing, so that each change has one event whatever the number of servers and restarts.
	AuditPool(ctx context.Context, entry Entry) error
	// ForgetAuditedPools removes pools that do not exist and did not change since then.
	ForgetAuditedPools(ctx context.Context, namespace string, uids []string, before time.Time) error
}

// Source is the watch of pools.
type Source interface {
	// NewGenerations are the pools with another generation than the known one.
	NewGenerations(known map[string]int64) ([]Pool, error)
	// PoolUIDs are those of all pools; false: the first list has not been read.
	PoolUIDs() ([]string, bool)
}

// Options of New; Store, Source and Namespace are required.
type Options struct {
	Store     Store
	Source    Source
	Namespace string
	// Verified says whether the cluster verified the author of a change at that time; nil: it never does.
	Verified func(ctx context.Context, at time.Time) (bool, error)
	Log      *slog.Logger
	Now      func() time.Time
	// Retry is the delay after a failed write; default 10 s.
	Retry time.Duration
}

// forgetAfter is how long a deleted pool is kept, so that a server whose watch is behind removes none that another has just recorded.
const forgetAfter = 24 * time.Hour

// Auditor records changes of pools. Servers that share a database may all run one.
type Auditor struct {
	opt     Options
	changed chan struct{}

	// Of Run's goroutine.
	known  map[string]int64 // generations that the audit log has, by UID; nil: not read
	forgot bool
}

// New checks the options.
func New(opt Options) (*Auditor, error) {
	if opt.Store == nil || opt.Source == nil || opt.Namespace == "" {
		return nil, errors.New("the audit of pools needs a store, a source and a namespace")
	}
	if opt.Verified == nil {
		opt.Verified = func(context.Context, time.Time) (bool, error) { return false, nil }
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Retry == 0 {
		opt.Retry = 10 * time.Second
	}
	return &Auditor{opt: opt, changed: make(chan struct{}, 1)}, nil
}

// Changed requests a pass, after the spec of a pool changed or a pool appeared. It does not block.
func (a *Auditor) Changed() {
	select {
	case a.changed <- struct{}{}:
	default: // a pass is due already
	}
}

// Run records changes until ctx ends.
func (a *Auditor) Run(ctx context.Context) {
	retry := time.NewTimer(a.opt.Retry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
		case <-retry.C:
		}
		retry.Stop()
		if err := a.pass(ctx); err != nil && ctx.Err() == nil {
			a.opt.Log.WarnContext(ctx, "changes of pools are not in the audit log yet; retrying", "error", err)
			retry.Reset(a.opt.Retry)
		}
	}
}

// pass records what changed since the last one.
func (a *Auditor) pass(ctx context.Context) error {
	if a.known == nil {
		known, err := a.opt.Store.AuditedPools(ctx, a.opt.Namespace)
		if err != nil {
			return err
		}
		a.known = known
	}
	pools, err := a.opt.Source.NewGenerations(a.known)
	for _, pool := range pools {
		err = errors.Join(err, a.record(ctx, pool))
	}
	return errors.Join(err, a.forget(ctx))
}

func (a *Auditor) record(ctx context.Context, pool Pool) error {
	entry := Entry{Pool: pool, Now: a.opt.Now()}
	if pool.Author != "" {
		verified, err := a.opt.Verified(ctx, entry.Now)
		if err != nil {
			return fmt.Errorf("verifying the author of a change of pool %s: %w", pool.Name, err)
		}
		if verified { // NET-5
			entry.Requester = pool.Author
		} else {
			entry.Stated = pool.Author
		}
	}
	err := a.opt.Store.AuditPool(ctx, entry)
	if errors.Is(err, fleet.ErrUnstorable) { // no retry changes that
		a.opt.Log.WarnContext(ctx, "a change of a pool cannot be stored in the audit log", "pool", pool.Name, "generation", pool.Generation, "error", err)
		err = nil
	}
	if err == nil {
		a.known[pool.UID] = pool.Generation
	}
	return err
}

// forget removes deleted pools once per process.
func (a *Auditor) forget(ctx context.Context) error {
	uids, listed := a.opt.Source.PoolUIDs()
	if a.forgot || !listed {
		return nil
	}
	if err := a.opt.Store.ForgetAuditedPools(ctx, a.opt.Namespace, uids, a.opt.Now().Add(-forgetAfter)); err != nil {
		return err
	}
	a.forgot = true
	return nil
}
