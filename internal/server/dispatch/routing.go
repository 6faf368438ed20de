package dispatch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// router is a replica's knowledge of which pool serves which label set. Sets without a pool are not kept, so that their number costs
// nothing (TEN-1). Dispatcher.mu guards it.
type router struct {
	routing Routing
	known   map[string]bool // the label sets in it: those that a pool serves, or several would
	pools   []Pool          // that it was made of, or that have made it invalid
	valid   bool            // there is a routing, and nothing has changed since that it depends on
	changes uint64          // rises with each such change
	arrived map[string]bool // label sets of which a job was queued since, and that are not known
}

// routed is as much of the pools as routing depends on, and whether their jobs are handed out, by name.
func routed(pools []Pool) []Pool {
	out := make([]Pool, len(pools))
	for i, p := range pools {
		out[i] = Pool{
			Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Platform: p.Platform, Shape: p.Shape, Paused: p.Paused, Terminating: p.Terminating,
		}
	}
	slices.SortFunc(out, func(a, b Pool) int { return compareRefs(a.Ref(), b.Ref()) })
	return out
}

// PoolsChanged reports that a pool appeared, changed or was deleted. Label sets are matched again if that makes a difference
// to any: a pool's status changes all the time.
func (d *Dispatcher) PoolsChanged() {
	pools := routed(d.opt.Cluster.Pools())
	d.mu.Lock()
	same := d.router.pools != nil && reflect.DeepEqual(d.router.pools, pools)
	d.router.pools = pools
	d.mu.Unlock()
	if !same {
		d.reroute()
	}
}

// reroute matches all label sets again that any pool could serve.
func (d *Dispatcher) reroute() {
	d.mu.Lock()
	d.router.valid = false
	d.router.changes++
	d.mu.Unlock()
	d.wakeAll()
}

// Reconnected reports that notifications may have been lost: everything that they could announce is read again.
func (d *Dispatcher) Reconnected() {
	d.reroute()
	d.AdoptionRequested()
}

// WorkArrived reports that jobs of that label set were queued, or that room was made (empty key). A set that is new here is
// matched alone, and one that no pool serves wakes no poll (TEN-1).
func (d *Dispatcher) WorkArrived(labelKey string) {
	d.mu.Lock()
	known := labelKey == "" || d.router.known[labelKey]
	d.mu.Unlock()
	if !known && !d.servesNow(labelKey) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r := &d.router; {
	case known || r.known[labelKey]:
	case !r.valid:
		r.changes++ // a concurrent reader may have read the label sets before this one was there
	default:
		if r.arrived == nil {
			r.arrived = map[string]bool{}
		}
		r.arrived[labelKey] = true
	}
	for _, m := range d.matchers {
		m.wakeUp()
	}
}

// servesNow reports whether any live pool has these labels.
func (d *Dispatcher) servesNow(labelKey string) bool {
	labels, ok := LabelsOf(labelKey)
	return ok && slices.ContainsFunc(d.opt.Cluster.Pools(), func(p Pool) bool { return !p.Terminating && p.Serves(labels) })
}

// routingNow matches to pools what has changed since the last time.
func (d *Dispatcher) routingNow(ctx context.Context) (Routing, error) {
	d.routeMu.Lock()
	defer d.routeMu.Unlock()
	d.mu.Lock()
	valid, changes, known, r := d.router.valid, d.router.changes, d.router.known, d.router.routing
	arrived, before := slices.Sorted(maps.Keys(d.router.arrived)), d.router.pools
	d.mu.Unlock()
	if valid && len(arrived) == 0 {
		return r, nil
	}
	pools := d.opt.Cluster.Pools()
	// PoolsChanged comes after the change shows here, and will find nothing changed.
	valid = valid && reflect.DeepEqual(before, routed(pools))
	keys := slices.Concat(slices.Collect(maps.Keys(known)), arrived)
	if !valid {
		var err error
		if keys, err = d.servable(ctx, pools); err != nil {
			return Routing{}, err
		}
	}
	sets := make([]LabelSet, 0, len(keys))
	for _, key := range keys {
		if labels, ok := LabelsOf(key); ok {
			sets = append(sets, LabelSet{Key: key, Labels: labels})
		}
	}
	next := Route(pools, sets)
	if err := d.unparkReshaped(ctx, next, pools); err != nil {
		return Routing{}, err
	}
	d.setRouting(ctx, next, pools, arrived, changes)
	return next, nil
}

// setRouting makes that the routing of these pools. If something has changed since it was begun, the next reading starts
// over.
func (d *Dispatcher) setRouting(ctx context.Context, next Routing, pools []Pool, arrived []string, changes uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.router
	if changes == r.changes {
		r.valid, r.pools = true, routed(pools)
	}
	for key, several := range next.Ambiguous {
		if _, known := r.routing.Ambiguous[key]; !known {
			d.opt.Log.WarnContext(ctx, "jobs stay queued: more than one pool serves their labels", "labels", key, "pools", several)
		}
	}
	d.metrics.ambiguous.Set(float64(len(next.Ambiguous)))
	r.routing, r.known = next, map[string]bool{}
	for _, keys := range next.Served {
		for _, key := range keys {
			r.known[key] = true
		}
	}
	for key := range next.Ambiguous {
		r.known[key] = true
	}
	for _, key := range arrived {
		delete(r.arrived, key)
	}
}

// servable lists the label sets, by key, that jobs have asked for and that at least one of the pools serves. It asks for those that the
// pools' labels make up, which does not depend on how many others there are; of a pool with very many labels it has to read them all.
func (d *Dispatcher) servable(ctx context.Context, pools []Pool) ([]string, error) {
	asked := map[string]bool{}
	var wide []Pool
	for _, pool := range pools {
		keys, ok := pool.servable()
		if !ok {
			wide = append(wide, pool)
		}
		for _, key := range keys {
			asked[key] = true
		}
	}
	found, err := d.opt.Store.LabelSetsAmong(ctx, slices.Sorted(maps.Keys(asked)))
	if err != nil {
		return nil, fmt.Errorf("reading label sets: %w", err)
	}
	if len(wide) == 0 {
		return found, nil
	}
	sets, err := d.opt.Store.LabelSets(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading label sets: %w", err)
	}
	for _, set := range sets {
		if !asked[set.Key] && slices.ContainsFunc(wide, func(p Pool) bool { return p.Serves(set.Labels) }) {
			found = append(found, set.Key)
		}
	}
	return found, nil
}

// sets lists the label sets that the routing has a pool for.
func (r Routing) sets() []LabelSet {
	var sets []LabelSet
	add := func(key string) {
		if labels, ok := LabelsOf(key); ok {
			sets = append(sets, LabelSet{Key: key, Labels: labels})
		}
	}
	for _, keys := range r.Served {
		for _, key := range keys {
			add(key)
		}
	}
	for key := range r.Ambiguous {
		add(key)
	}
	slices.SortFunc(sets, func(a, b LabelSet) int { return strings.Compare(a.Key, b.Key) })
	return sets
}

// servedBy is what a label set's lanes were parked for: how much of a budget one runner takes.
type servedBy struct {
	platform fleet.Platform
	shape    fleet.Shape
}

// unparkReshaped unparks lanes at their limit when their runners take another size or platform than before: no
// claim's end would ever wake those that were parked because one runner was too large.
func (d *Dispatcher) unparkReshaped(ctx context.Context, r Routing, pools []Pool) error {
	served := make(map[string]servedBy, len(d.served))
	changed := []string{}
	for _, pool := range pools {
		now := servedBy{pool.Platform, pool.Shape}
		for _, key := range r.Served[pool.Ref()] {
			served[key] = now
			if d.served[key] != now {
				changed = append(changed, key)
			}
		}
	}
	if len(changed) > 0 {
		if err := d.opt.Store.UnparkLabelSets(ctx, changed); err != nil {
			return err
		}
	}
	d.served = served
	return nil
}
