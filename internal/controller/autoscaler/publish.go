package autoscaler

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	runnerpool "github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
)

// verdict is a decision with the values of its metrics.
type verdict struct {
	runnerpool.Decision
	autoscaled bool
	target     int
	share      scaling.Share
}

func (a *Autoscaler) publish(ctx context.Context, seen observation, results []scaling.Result) {
	next := make(map[types.NamespacedName]verdict, len(results))
	a.mu.RLock()
	before := a.verdict
	a.mu.RUnlock()
	for _, r := range results {
		key, p := seen.keys[r.Name], seen.pools[r.Name]
		v := verdict{autoscaled: p.Autoscaled && !p.Terminating, target: r.Target, share: r.Share}
		v.Decision = runnerpool.Decision{
			Pool: seen.uids[key], Desired: r.Desired, Decided: r.State.Decided, LastScaleDown: r.State.LastScaleDown,
			Blind: r.Blind, Short: r.Short, Removals: seen.removed[key],
		}
		v.blindFrom(before[key], seen.input.Now)
		if s, known := seen.demand[key]; known {
			v.Demand = &runnerpool.Demand{Occupied: max(s.Occupied, s.Claimed), Queued: s.Queued, Blocked: seen.input.Signals.Pools[r.Name].Blocked}
			v.Demand.Refused = s.Refused
			if s.OldestQueued != nil {
				v.Demand.OldestQueued = *s.OldestQueued
			}
		}
		next[key] = v
	}
	a.replace(ctx, next)
}

// publishBlind leaves every number as it is, and says why.
func (a *Autoscaler) publishBlind(ctx context.Context, why string) {
	a.mu.RLock()
	before, next := a.verdict, maps.Clone(a.verdict)
	a.mu.RUnlock()
	for key, v := range next {
		v.Demand, v.Removals, v.Short = nil, nil, ""
		if v.autoscaled {
			v.Blind = why // POOL-8
			v.blindFrom(before[key], a.options.Now())
		}
		next[key] = v
	}
	a.replace(ctx, next)
}

// blindFrom keeps since when nothing can be decided.
func (v *verdict) blindFrom(before verdict, now time.Time) {
	switch {
	case v.Blind == "":
		v.BlindSince = time.Time{}
	case before.Blind != "" && before.Pool == v.Pool:
		v.BlindSince = before.BlindSince
	default:
		v.BlindSince = now
	}
}

// replace publishes, and then wakes the pools for which that changes something.
func (a *Autoscaler) replace(ctx context.Context, next map[types.NamespacedName]verdict) {
	a.mu.Lock()
	before := a.verdict
	a.verdict = next
	a.mu.Unlock()
	for key, v := range next {
		if !worthAPass(before[key].Decision, v.Decision) {
			continue
		}
		select {
		case a.wakes <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
		case <-ctx.Done():
			return
		}
	}
}

// worthAPass reports whether a pool would do something else, or say something else, than before. How many jobs wait or run
// changes all the time; that some do is news.
func worthAPass(before, after runnerpool.Decision) bool {
	wait := func(d runnerpool.Decision) (known, queued, blocked bool) {
		if d.Demand == nil {
			return false, false, false
		}
		return true, d.Demand.Queued > 0, d.Demand.Blocked > 0
	}
	knew, queued, blocked := wait(before)
	knows, queues, blocks := wait(after)
	return before.Pool != after.Pool || before.Desired != after.Desired || before.Decided != after.Decided ||
		(before.Blind == "") != (after.Blind == "") || (before.Short == "") != (after.Short == "") ||
		knew != knows || queued != queues || blocked != blocks || !maps.Equal(before.Removals, after.Removals)
}
