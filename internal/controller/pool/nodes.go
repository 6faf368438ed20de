package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// runnerKey names one runner of one pool.
type runnerKey struct {
	pool types.NamespacedName
	name string
}

// nodeBook is what is known of nodes, and which runners are on each: so that an event of a node costs what is on it, and
// not what the fleet holds. It is safe for concurrent use; a pool's lock may be held while it is asked, never the other
// way round.
type nodeBook struct {
	mu      sync.Mutex
	shown   map[string]*corev1.Node // by the watch; trimmed, and never changed
	runners map[string]map[runnerKey]bool
	// absent says of nodes since when an uncached read has found that they do not exist (POOL-7).
	absent  map[string]time.Time
	synced  bool   // the watch has delivered its initial list
	version uint64 // rises with each change that the watch shows
	// taints announce that a node is about to be removed. They do not change.
	taints nodes.Taints
}

func newNodeBook() *nodeBook {
	return &nodeBook{shown: map[string]*corev1.Node{}, runners: map[string]map[runnerKey]bool{}, absent: map[string]time.Time{},
		taints: nodes.DefaultTaints()}
}

// put records what the watch shows of a node, and returns the runners on it if it has changed.
func (b *nodeBook) put(node *corev1.Node) (news bool, runners []runnerKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.shown[node.Name]; old != nil && nodes.Same(old, node) {
		return false, nil // its heartbeat
	}
	b.shown[node.Name] = node
	b.version++
	delete(b.absent, node.Name) // NODE-8: it has come back, and what was not granted is off
	return true, b.on(node.Name)
}

// drop records that the watch no longer shows a node. That proves nothing yet.
func (b *nodeBook) drop(name string) []runnerKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.shown, name)
	b.version++
	return b.on(name)
}

func (b *nodeBook) on(name string) []runnerKey {
	runners := make([]runnerKey, 0, len(b.runners[name]))
	for key := range b.runners[name] {
		runners = append(runners, key)
	}
	return runners
}

// move notes that a runner is on another node than before; empty for on none.
func (b *nodeBook) move(key runnerKey, from, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from != "" {
		if delete(b.runners[from], key); len(b.runners[from]) == 0 {
			delete(b.runners, from)
			delete(b.absent, from)
		}
	}
	if to == "" {
		return
	}
	if b.runners[to] == nil {
		b.runners[to] = map[runnerKey]bool{}
	}
	b.runners[to][key] = true
}

// whereabouts is what a runner's node means for it.
type whereabouts struct {
	leaving string    // why runners should leave the node; empty when they should not
	absent  time.Time // since when the node is known not to exist; zero when it may
	unready time.Time // since when it has not been ready; zero while it is
}

func (b *nodeBook) look(name string, tolerations []corev1.Toleration) whereabouts {
	if name == "" {
		return whereabouts{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	node := b.shown[name]
	if node == nil {
		return whereabouts{absent: b.absent[name]}
	}
	return whereabouts{unready: nodes.UnreadySince(node), leaving: nodes.DepartureOf(node, b.taints).For(tolerations)}
}

// suspect reports whether runners are bound to a node that the watch does not show.
func (b *nodeBook) suspect(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return name != "" && b.shown[name] == nil && len(b.runners[name]) > 0
}

// trusted reports whether the watch's silence about a node means anything: it has shown everything, and that is something.
// An empty list never means that every node is gone (POOL-7).
func (b *nodeBook) trusted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced && len(b.shown) > 0
}

// setSynced notes that the watch has shown everything there was.
func (b *nodeBook) setSynced() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.synced = true
}

// found records the result of an uncached read of a node, and returns the runners on it if it has changed.
func (b *nodeBook) found(name string, exists bool, now time.Time) []runnerKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.absent[name]
	switch {
	case exists && known:
		delete(b.absent, name) // NODE-8
	case !exists && !known && b.shown[name] == nil && len(b.runners[name]) > 0:
		b.absent[name] = now
	default:
		return nil
	}
	return b.on(name)
}

// all lists the nodes that the watch shows.
func (b *nodeBook) all() []*corev1.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	shown := make([]*corev1.Node, 0, len(b.shown))
	for _, node := range b.shown {
		shown = append(shown, node)
	}
	return shown
}

// runnersOn lists the runners of a pool on a node.
func (b *nodeBook) runnersOn(node string, pool types.NamespacedName) []runnerKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(b.on(node), func(key runnerKey) bool { return key.pool != pool })
}

// usable lists the nodes on which a runner of that placement could be started now.
func (b *nodeBook) usable(p nodes.Placement) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name, node := range b.shown {
		if p.Usable(node) {
			names = append(names, name)
		}
	}
	return names
}

func (b *nodeBook) currentVersion() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// nodeEvents start passes for the pools that have runners on a node which has changed in what matters to them, and for
// those that wait for room to start some.
func (r *Reconciler) nodeEvents() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	seen := func(node *corev1.Node, q queue) {
		if news, runners := r.tracker.nodes.put(node); news {
			imagesMoved(r.tracker.images.nodeSeen(node), q)
			r.runnersMoved(runners, q)
			r.tracker.starts.stir()
			r.startsMayGoOn(q)
		}
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { seen(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) {
			runners := r.tracker.nodes.drop(e.Object.Name)
			imagesMoved(r.tracker.images.nodeGone(e.Object.Name), q)
			if len(runners) > 0 {
				r.removals.checkNode(e.Object.Name)
			}
			r.runnersMoved(runners, q)
		},
	}
}

// imagesMoved starts passes for the pools whose images are on more or fewer nodes now.
func imagesMoved(pools []types.NamespacedName, q queue) {
	for _, key := range pools {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// runnersMoved enqueues the runners whose node has changed.
func (r *Reconciler) runnersMoved(runners []runnerKey, q queue) {
	for key := range r.tracker.nodeChanged(runners, r.now()) {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// nodeChanged updates runners after a change of their node, and returns the pools whose plan may change.
func (t *tracker) nodeChanged(runners []runnerKey, now time.Time) map[types.NamespacedName]bool {
	pools := map[types.NamespacedName]bool{}
	for _, key := range runners {
		state := t.pool(key.pool)
		state.mu.Lock()
		if m := state.members[key.name]; m != nil && state.settle(m, now) {
			pools[key.pool] = true
		}
		state.mu.Unlock()
	}
	return pools
}

// locate finds out what a runner's node means for it.
func (s *poolState) locate(m *member) {
	node := m.view.node
	if m.gone {
		node = ""
	}
	if m.on != node {
		s.nodes.move(runnerKey{s.key, m.name}, m.on, node)
		m.on = node
	}
	m.where = s.nodes.look(node, m.view.tolerations)
	m.imageless = s.images.lacks(s.key, node)
}

// unfitOnItsNode says why a runner that shows no work should leave its node at once.
func (m *member) unfitOnItsNode(now time.Time) lifecycle.Unfit {
	switch {
	case m.vanished(now):
		return lifecycle.Unfit{Reason: lifecycle.ReasonLost, Detail: "its node " + m.view.node + " does not exist any more"}
	case m.where.leaving != "":
		return lifecycle.Unfit{Reason: lifecycle.ReasonNodeCordoned, Detail: m.where.leaving}
	default:
		return lifecycle.Unfit{}
	}
}

// doubtOnItsNode says why it is unknown whether a runner that shows no work can still take a job.
func (m *member) doubtOnItsNode(now time.Time) lifecycle.Unfit {
	if m.where.unready.IsZero() || now.Before(m.where.unready.Add(nodes.UnreadyFor)) {
		return lifecycle.Unfit{}
	}
	return lifecycle.Unfit{Reason: lifecycle.ReasonNodeNotReady, Detail: "its node " + m.view.node + " is not ready since " + m.where.unready.UTC().Format(time.RFC3339)}
}
