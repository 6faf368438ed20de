package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// startTerm names what holds creations back.
type startTerm string

// The terms.
const (
	termNoUsableNode   startTerm = "no_usable_node"  // no node of the fleet can start a runner: one start waits for a node
	termPlacementBurst startTerm = "placement_burst" // the maximum of runners that wait for a node is reached
	termFleetCeiling   startTerm = "fleet_ceiling"   // the maximum of starting runners on the nodes is reached
	termPoolShare      startTerm = "pool_share"      // the remaining starts are shared with other pools
)

// startingPool is one pool of a fleet, as far as starts go.
type startingPool struct {
	name     string
	limit    int            // starts for each node; 0: it sets none
	wanted   int            // more runners that it wants to create
	placed   map[string]int // runners that are starting, by node
	unplaced int            // runners without a node, rejected by the scheduler or not
}

func (p startingPool) starting() int {
	n := p.unplaced
	for _, on := range p.placed {
		n += on
	}
	return n
}

// startShare is what one pool may create now.
type startShare struct {
	allowed int
	term    startTerm // what holds back the rest; empty when nothing is held back
	detail  string    // in a sentence
}

// admitStarts returns how many runners each pool of a fleet may create now, so that the number of starting runners per usable node stays
// within the lowest limit of the pools. It is a pure function. Starts that hang on one node use only that node's share. A fleet without a
// usable node counts as one with a single node, so that a cluster autoscaler sees a pending pod. A pool that wants a runner and has none
// starting may always start one; the rest is given one by one to the pool with the fewest starting, by name. Without any limit it returns
// false.
func admitStarts(usable []string, pools []startingPool) (shares map[string]startShare, limited bool) {
	perNode := 0
	for _, p := range pools {
		if p.limit > 0 && (perNode == 0 || p.limit < perNode) {
			perNode = p.limit
		}
	}
	if perNode == 0 {
		return nil, false
	}
	pools = slices.SortedFunc(slices.Values(pools), func(a, b startingPool) int { return strings.Compare(a.name, b.name) })
	onNodes, unplaced := perNode, 0
	if len(usable) > 0 {
		onNodes = 0
	}
	for _, node := range usable {
		starting := 0
		for _, p := range pools {
			starting += p.placed[node]
		}
		onNodes += max(0, perNode-starting)
	}
	for _, p := range pools {
		unplaced += p.unplaced
	}
	given, left := shareOut(pools, onNodes-unplaced)
	shares = make(map[string]startShare, len(pools))
	for i, p := range pools {
		share := startShare{allowed: given[i]}
		if given[i] < p.wanted {
			switch {
			case len(usable) == 0:
				share.term, share.detail = termNoUsableNode, "no node matching the pool's template is usable"
			case onNodes > 0 && unplaced >= onNodes:
				share.term, share.detail = termPlacementBurst, fmt.Sprintf("%d runners of the fleet are already waiting for a node", unplaced)
			case onNodes <= 0 || left+given[i] >= onNodes-unplaced:
				share.term, share.detail = termFleetCeiling, fmt.Sprintf("the fleet has %d usable nodes, and each may start %d runners at once", len(usable), perNode)
			default:
				share.term, share.detail = termPoolShare, "other pools of the fleet are starting runners too"
			}
		}
		shares[p.name] = share
	}
	return shares, true
}

// shareOut gives one to each pool that wants a runner and has none starting, and then one at a time to the pool with the fewest. left is
// what remains when no pool wants more.
func shareOut(pools []startingPool, room int) (given []int, left int) {
	given, has := make([]int, len(pools)), make([]int, len(pools))
	give := func(i int) {
		given[i]++
		has[i]++
		room--
	}
	for i, p := range pools {
		if has[i] = p.starting(); p.wanted > 0 && has[i] == 0 {
			give(i)
		}
	}
	for room > 0 {
		fewest := -1
		for i, p := range pools {
			if given[i] < p.wanted && (fewest < 0 || has[i] < has[fewest]) {
				fewest = i
			}
		}
		if fewest < 0 {
			break
		}
		give(fewest)
	}
	return given, max(room, 0)
}

// startPlace is where a runner counts as starting: nowhere, on a node, or, with an empty name, waiting for one.
type startPlace struct {
	counts bool
	node   string
}

// startBook counts the runners of each pool that are starting. It is kept up to date with each change of one, so that a
// pass walks no pods. It is safe for concurrent use; a pool's lock may be held while it is asked, never the other way
// round.
type startBook struct {
	// gate is held while a pool of a limited fleet looks and creates, so that two of them cannot both take what is left.
	// It is taken before any other lock.
	gate sync.Mutex

	mu      sync.Mutex
	pools   map[types.NamespacedName]*poolStarts
	learnt  map[string]bool // namespaces of which every pool's fleet and limit are known
	stirred bool            // a start has ended or been bound to a node, or nodes have changed, since the waiting pools last planned
}

type poolStarts struct {
	startingPool
	fleet   string // empty until a pass has recorded it
	refused bool   // its last plan was held back
	// usable are the nodes on which its runners can start, as of a version of the nodes and a generation of the pool.
	usable        []string
	version       uint64
	generation    int64
	uid           types.UID
	usableIsKnown bool
}

func newStartBook() *startBook {
	return &startBook{pools: map[types.NamespacedName]*poolStarts{}, learnt: map[string]bool{}}
}

func (b *startBook) of(key types.NamespacedName) *poolStarts {
	p := b.pools[key]
	if p == nil {
		p = &poolStarts{startingPool: startingPool{name: key.String(), placed: map[string]int{}}}
		b.pools[key] = p
	}
	return p
}

func (b *startBook) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, key)
}

// move notes that a runner counts elsewhere than before.
func (b *startBook) move(key types.NamespacedName, from, to startPlace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(key)
	count := func(at startPlace, by int) {
		switch {
		case !at.counts:
		case at.node == "":
			p.unplaced += by
		default:
			if p.placed[at.node] += by; p.placed[at.node] == 0 {
				delete(p.placed, at.node)
			}
		}
	}
	count(from, -1)
	count(to, 1)
	b.stirred = b.stirred || from.counts
}

// stir notes that what may be started has changed.
func (b *startBook) stir() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stirred = true
}

// waiting lists the pools that were held back, if they have reason to look again.
func (b *startBook) waiting() []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stirred {
		return nil
	}
	b.stirred = false
	var keys []types.NamespacedName
	for key, p := range b.pools {
		if p.refused {
			keys = append(keys, key)
		}
	}
	return keys
}

// enter notes what a pool says of its starts, and reports whether any pool of its fleet sets a limit.
func (b *startBook) enter(key types.NamespacedName, fleet string, limit int) (limited bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(key)
	p.fleet, p.limit = fleet, limit
	for _, other := range b.pools {
		limited = limited || other.fleet == fleet && other.limit > 0
	}
	return limited
}

func (b *startBook) hasLearnt(namespace string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.learnt[namespace]
}

// learn records the fleets and limits of a namespace's pools, except of pools whose own passes have recorded them.
func (b *startBook) learn(namespace string, pools []poolStarts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pool := range pools {
		if p := b.of(types.NamespacedName{Namespace: namespace, Name: pool.name}); p.fleet == "" {
			p.fleet, p.limit = pool.fleet, pool.limit
		}
	}
	b.learnt[namespace] = true
}

// record notes how a pass ended: how many more runners the pool wants.
func (b *startBook) record(key types.NamespacedName, missing int, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(key)
	p.wanted, p.refused = missing, refused
}

// share returns how many of the wanted runners the pool may create now.
func (b *startBook) share(key types.NamespacedName, wanted int, usable []string) (startShare, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(key).wanted = wanted
	fleet := b.of(key).fleet
	var pools []startingPool
	for other, p := range b.pools {
		// After a restart, a pool that has had no pass yet may be of any fleet of its namespace.
		if p.fleet == fleet || p.fleet == "" && other.Namespace == key.Namespace {
			one := p.startingPool
			one.placed = maps.Clone(p.placed)
			pools = append(pools, one)
		}
	}
	shares, limited := admitStarts(usable, pools)
	return shares[key.String()], limited
}

// countStart has the book count the runner where it is starting now.
func (s *poolState) countStart(m *member, r lifecycle.Runner, exists bool) {
	to := startPlace{counts: exists && r.Stage == lifecycle.StageStarting}
	if to.counts {
		to.node = m.view.node
	}
	if m.start != to {
		s.starts.move(s.key, m.start, to)
		m.start = to
	}
}

// lookAtStartsEvery is how often a pool that was held back looks again if no event has made it.
const lookAtStartsEvery = 5 * time.Second

// learnLimits has every pool's limit known before the first of them creates anything: after a restart the one that sets its
// fleet's limit may be the last to look.
func (r *Reconciler) learnLimits(ctx context.Context, namespace string) error {
	if r.tracker.starts.hasLearnt(namespace) {
		return nil
	}
	var list v1alpha1.RunnerPoolList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pools: %w", err)
	}
	pools := make([]poolStarts, len(list.Items))
	for i := range list.Items {
		pool := &list.Items[i]
		fleet, err := runnerpod.Fleet(pool)
		if err != nil {
			return err
		}
		pools[i].fleet, pools[i].name, pools[i].limit = fleet, pool.Name, limitOf(pool)
	}
	r.tracker.starts.learn(namespace, pools)
	return nil
}

// limitOf is how many of a pool's runners may be starting for each node; 0: it sets no limit.
func limitOf(pool *v1alpha1.RunnerPool) int {
	if most := pool.Spec.Provisioning.MaxConcurrentStarts; most != nil && pool.DeletionTimestamp == nil {
		return int(*most)
	}
	return 0
}

// usableNodes lists the nodes on which the pool's runners can start now. It matches nodes again only when they, or the
// pool, have changed.
func (r *Reconciler) usableNodes(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState) ([]string, error) {
	book, version := r.tracker.starts, r.tracker.nodes.currentVersion()
	book.mu.Lock()
	p := book.of(state.key)
	known, names := p.usableIsKnown && p.version == version && p.generation == pool.Generation && p.uid == pool.UID, p.usable
	book.mu.Unlock()
	if known {
		return names, nil
	}
	class, unread := r.runtimeClass(ctx, pool)
	if unread != nil {
		// Without it more nodes may look usable. The pool is still reconciled, and its completed runners are still reaped.
		r.options.Log.Warn("cannot read a RuntimeClass; limiting starts without its node selector", "pool", pool.Name, "error", unread)
	}
	options := r.options.Pod
	options.Around.Architecture = r.tracker.nodes.architecture()
	placement, err := nodes.PlacementOf(pool, options, class)
	if err != nil {
		return nil, err
	}
	names = r.tracker.nodes.usable(placement)
	book.mu.Lock()
	defer book.mu.Unlock()
	p = book.of(state.key)
	p.usable, p.version, p.generation, p.uid, p.usableIsKnown = names, version, pool.Generation, pool.UID, unread == nil
	return names, nil
}

// readClassWithin bounds the wait for a cache that may never be filled, where the controller's role lacks runtime classes.
const readClassWithin = 2 * time.Second

// runtimeClass reads the class that the pool's template names; nil when it names none, or one that does not exist: the API
// server will refuse the pods, and says why.
func (r *Reconciler) runtimeClass(ctx context.Context, pool *v1alpha1.RunnerPool) (*nodev1.RuntimeClass, error) {
	name := pool.Spec.Template.RuntimeClassName
	if name == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readClassWithin)
	defer cancel()
	var class nodev1.RuntimeClass
	if err := r.client.Get(ctx, types.NamespacedName{Name: *name}, &class); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &class, nil
}

// startsMayGoOn starts passes for the pools that were held back, when something has changed for them.
func (r *Reconciler) startsMayGoOn(q queue) {
	for _, key := range r.tracker.starts.waiting() {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
