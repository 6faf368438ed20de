package nodeload

import (
	"sync"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Weight is what one runner adds to the load of a node; the zero value for nothing.
type Weight struct {
	Node string
	Load lifecycle.Load
}

// WeightOf is the weight of a runner; has reports whether it is there at all.
func WeightOf(r lifecycle.Runner, has bool) Weight {
	if load := r.Load(); has && load != (lifecycle.Load{}) {
		return Weight{Node: r.Node, Load: load}
	}
	return Weight{}
}

// Book counts the runners that stay on each node, of all owners and kinds, so that each of them can choose runners whose nodes are nearest to
// being empty of all (SCALE-5). It is safe for concurrent use, and never waits.
type Book struct {
	mu      sync.Mutex
	weights map[string]map[string]Weight         // by owner and runner
	nodes   map[string]map[string]lifecycle.Load // by node and owner
}

// New returns one that counts nothing yet.
func New() *Book {
	return &Book{weights: map[string]map[string]Weight{}, nodes: map[string]map[string]lifecycle.Load{}}
}

// Set notes what a runner of an owner weighs now.
func (b *Book) Set(owner, runner string, now Weight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(owner, b.weights[owner][runner], -1)
	b.add(owner, now, 1)
	switch {
	case now != (Weight{}):
		if b.weights[owner] == nil {
			b.weights[owner] = map[string]Weight{}
		}
		b.weights[owner][runner] = now
	case b.weights[owner] != nil:
		if delete(b.weights[owner], runner); len(b.weights[owner]) == 0 {
			delete(b.weights, owner)
		}
	}
}

// Forget removes all runners of an owner.
func (b *Book) Forget(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, weight := range b.weights[owner] {
		b.add(owner, weight, -1)
	}
	delete(b.weights, owner)
}

func (b *Book) add(owner string, w Weight, sign int) {
	if w == (Weight{}) {
		return
	}
	if b.nodes[w.Node] == nil {
		b.nodes[w.Node] = map[string]lifecycle.Load{}
	}
	load := b.nodes[w.Node][owner]
	load.Runners += sign * w.Load.Runners
	load.Busy += sign * w.Load.Busy
	if load != (lifecycle.Load{}) {
		b.nodes[w.Node][owner] = load
		return
	}
	if delete(b.nodes[w.Node], owner); len(b.nodes[w.Node]) == 0 {
		delete(b.nodes, w.Node)
	}
}

// Others are the runners of other owners on the nodes that this one has runners on.
func (b *Book) Others(owner string) map[string]lifecycle.Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := map[string]lifecycle.Load{}
	for _, weight := range b.weights[owner] {
		if _, counted := others[weight.Node]; counted {
			continue
		}
		var sum lifecycle.Load
		for other, load := range b.nodes[weight.Node] {
			if other != owner {
				sum.Runners += load.Runners
				sum.Busy += load.Busy
			}
		}
		others[weight.Node] = sum
	}
	return others
}
