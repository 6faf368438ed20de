package dispatch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

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
	readAt  time.Time       // when the ledger last said which of the label sets have a lane
	reading bool            // it is being asked that
	arrived map[string]bool // label sets of which a job was queued since, and that are not known, or may be dropped by the present reading
}

// routingKept is how long label sets without a lane stay in the routing, at most: each batch probes the lanes of all that are there (TEN-1).
const routingKept = 10 * time.Minute

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
	// A reading that is not there yet will find the set; one that has begun may have read before the set's lane was there.
	if r := &d.router; labelKey != "" && (r.reading || r.valid && !r.known[labelKey]) {
		r.arrive(labelKey)
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

// arrive notes that jobs of that label set were queued.
func (r *router) arrive(labelKey string) {
	if r.arrived == nil {
		r.arrived = map[string]bool{}
	}
	r.arrived[labelKey] = true
}

// arriveAgain is for label sets that a failed reading has not matched.
func (d *Dispatcher) arriveAgain(labelKeys map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range labelKeys {
		d.router.arrive(key)
	}
}

// routingNow matches to pools what has changed since the last time.
func (d *Dispatcher) routingNow(ctx context.Context) (Routing, error) {
	next, err := d.rerouteNow(ctx)
	return next.routing, err
}

func (d *Dispatcher) rerouteNow(ctx context.Context) (rerouted, error) {
	d.routeMu.Lock()
	defer d.routeMu.Unlock()
	r := &d.router
	d.mu.Lock()
	changes := r.changes // before the pools, so that a change while they are read makes this routing invalid
	d.mu.Unlock()
	pools, now := d.opt.Cluster.Pools(), d.opt.Now()
	d.mu.Lock()
	r.reading = r.reading || !r.valid || now.Sub(r.readAt) >= routingKept
	if r.valid && (r.reading || len(r.arrived) > 0) && !reflect.DeepEqual(r.pools, routed(pools)) {
		r.valid, r.reading = false, true // PoolsChanged comes after the change shows here, and will find nothing changed
	}
	next := rerouted{valid: r.valid, reread: r.reading, changes: changes, arrived: r.arrived, pools: pools, at: now}
	kept := r.routing
	r.arrived = nil // a set that arrives again from here on may have its lane too late for this reading
	d.mu.Unlock()
	if next.valid && !next.reread && len(next.arrived) == 0 {
		return rerouted{routing: kept}, nil
	}
	if err := d.rematch(ctx, &next, kept); err != nil {
		d.arriveAgain(next.arrived)
		return rerouted{}, err
	}
	d.setRouting(ctx, next)
	return next, nil
}

// rerouted is a routing in the making.
type rerouted struct {
	valid, reread bool            // as the router's valid and reading when it was begun
	changes       uint64          // the router's, before the pools were read
	arrived       map[string]bool // the router's
	pools         []Pool
	at            time.Time

	fresh   Routing // of the label sets that were matched now
	routing Routing
}

// rematch makes the routing. Unless it is invalid, no known set is matched again, however many there are: those that arrived are matched, and
// at times those without a lane are dropped (TEN-1).
func (d *Dispatcher) rematch(ctx context.Context, next *rerouted, kept Routing) error {
	keys := slices.Sorted(maps.Keys(next.arrived))
	if !next.valid {
		var err error
		if keys, err = d.servable(ctx, next.pools); err != nil {
			return err
		}
		kept = Routing{}
	} else if next.reread {
		live, err := d.opt.Store.LabelSetsAmong(ctx, kept.keys())
		if err != nil {
			return fmt.Errorf("reading label sets: %w", err)
		}
		kept = kept.only(live)
	}
	sets := make([]LabelSet, 0, len(keys))
	for _, key := range keys {
		if labels, ok := LabelsOf(key); ok {
			sets = append(sets, LabelSet{Key: key, Labels: labels})
		}
	}
	next.fresh = Route(next.pools, sets)
	next.routing = kept.with(next.fresh)
	return d.unparkReshaped(ctx, *next)
}

// setRouting makes that the routing. If something has changed since it was begun, the next reading starts over.
func (d *Dispatcher) setRouting(ctx context.Context, next rerouted) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.router
	if next.changes == r.changes {
		r.valid, r.pools = true, routed(next.pools)
	}
	for key, several := range next.fresh.Ambiguous {
		if _, known := r.routing.Ambiguous[key]; !known {
			d.opt.Log.WarnContext(ctx, "jobs stay queued: more than one pool serves their labels", "labels", key, "pools", several)
		}
	}
	d.metrics.ambiguous.Set(float64(len(next.routing.Ambiguous)))
	fresh := next.fresh
	if next.reread || r.known == nil {
		r.readAt, r.reading, r.known, fresh = next.at, false, map[string]bool{}, next.routing
	}
	for _, key := range fresh.keys() {
		r.known[key] = true
	}
	r.routing = next.routing
}

// servable lists the label sets, by key, that jobs have asked for and that at least one of the pools serves. It asks for those that the
// pools' labels make up, which does not depend on how many others there are; those of a pool with very many labels it looks for.
func (d *Dispatcher) servable(ctx context.Context, pools []Pool) ([]string, error) {
	asked := map[string]bool{}
	var wide []labelWalk
	for _, pool := range pools {
		keys, ok := pool.servable()
		if !ok {
			wide = append(wide, walkOf(pool))
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
	more, err := walk(ctx, d.opt.Store, wide, setsAtOnce)
	found = append(found, more...)
	slices.Sort(found)
	return slices.Compact(found), err
}

// keys lists the label sets that the routing has a pool for, or several, by key.
func (r Routing) keys() []string {
	keys := slices.Collect(maps.Keys(r.Ambiguous))
	for _, served := range r.Served {
		keys = append(keys, served...)
	}
	slices.Sort(keys)
	return keys
}

// sets lists the label sets that the routing has a pool for.
func (r Routing) sets() []LabelSet {
	var sets []LabelSet
	for _, key := range r.keys() {
		if labels, ok := LabelsOf(key); ok {
			sets = append(sets, LabelSet{Key: key, Labels: labels})
		}
	}
	return sets
}

// with is the routing and one of further label sets, by the same pools. Readers share a routing: it is not changed.
func (r Routing) with(more Routing) Routing {
	next := Routing{Served: map[PoolRef][]string{}, Ambiguous: map[string][]PoolRef{}}
	maps.Copy(next.Served, r.Served)
	maps.Copy(next.Ambiguous, r.Ambiguous)
	for pool, keys := range more.Served {
		both := slices.Concat(next.Served[pool], keys)
		slices.Sort(both)
		next.Served[pool] = slices.Compact(both)
	}
	maps.Copy(next.Ambiguous, more.Ambiguous)
	return next
}

// only is the routing of those of its label sets.
func (r Routing) only(keys []string) Routing {
	live := make(map[string]bool, len(keys))
	for _, key := range keys {
		live[key] = true
	}
	next := Routing{Served: map[PoolRef][]string{}, Ambiguous: maps.Clone(r.Ambiguous)}
	for pool, served := range r.Served {
		if left := slices.DeleteFunc(slices.Clone(served), func(key string) bool { return !live[key] }); len(left) > 0 {
			next.Served[pool] = left
		}
	}
	maps.DeleteFunc(next.Ambiguous, func(key string, _ []PoolRef) bool { return !live[key] })
	return next
}

// servedBy is what a label set's lanes were parked for: how much of a budget one runner takes.
type servedBy struct {
	platform fleet.Platform
	shape    fleet.Shape
}

// unparkReshaped unparks lanes at their limit when their runners take another size or platform than before: no
// claim's end would ever wake those that were parked because one runner was too large.
func (d *Dispatcher) unparkReshaped(ctx context.Context, next rerouted) error {
	changed := map[string]servedBy{}
	for _, pool := range next.pools {
		now := servedBy{pool.Platform, pool.Shape}
		for _, key := range next.fresh.Served[pool.Ref()] {
			if d.served[key] != now {
				changed[key] = now
			}
		}
	}
	if len(changed) > 0 {
		if err := d.opt.Store.UnparkLabelSets(ctx, slices.Sorted(maps.Keys(changed))); err != nil {
			return err
		}
	}
	if next.reread {
		served := make(map[string]servedBy, len(d.served))
		for _, keys := range next.routing.Served {
			for _, key := range keys {
				served[key] = d.served[key]
			}
		}
		d.served = served
	}
	maps.Copy(d.served, changed)
	return nil
}
