package lifecycle

import (
	"cmp"
	"slices"
)

// Shrinks reports whether there are more runners than desired, so that a plan may remove some for that reason alone and needs
// Wish.Others.
func Shrinks(wish Wish, runners *Set) bool {
	return runners.Len()-runners.Count(StageFinished)-runners.Count(StageLost) > wish.Desired
}

// eachRunner calls visit for some runners in an order of its own, until visit returns false.
type eachRunner func(visit func(Runner) bool)

// emptiestFirst calls visit for all of these, those first whose nodes are nearest to being empty, and otherwise in their
// own order, until visit returns false; it reports whether it never did. So a pool that shrinks empties one node after the
// other, instead of leaving a few runners on each (SCALE-5): a node without runners costs nothing, one with a single idle
// runner costs as much as a full one.
//
// It costs n log n of the given runners, and only plans that shrink an owner need it.
func (p *planner) emptiestFirst(each eachRunner, visit func(Runner) bool) bool {
	var all []Runner
	each(func(r Runner) bool {
		all = append(all, r)
		return true
	})
	if len(all) > 1 {
		slices.SortStableFunc(all, func(a, b Runner) int { return p.nearerEmpty(a.Node, b.Node) })
	}
	for _, r := range all {
		if !visit(r) {
			return false
		}
	}
	return true
}

// nearerEmpty orders nodes: those without busy runners first, because the end of a busy one is unknown; then those with
// fewer runners; then by name, so that the runners of one node stand together, and equal sets give equal plans. A runner
// without a node holds none.
func (p *planner) nearerEmpty(a, b string) int {
	if a == b {
		return 0
	}
	loads := p.loads()
	return cmp.Or(
		cmp.Compare(min(loads[a].Busy, 1), min(loads[b].Busy, 1)),
		cmp.Compare(loads[a].Runners, loads[b].Runners),
		cmp.Compare(a, b),
	)
}

// loads are the runners on each node, of this owner and of others, without those that the plan has chosen before it was first asked.
func (p *planner) loads() map[string]Load {
	if p.nodes != nil {
		return p.nodes
	}
	p.nodes = make(map[string]Load, len(p.wish.Others))
	for node, load := range p.wish.Others {
		p.nodes[node] = load
	}
	for name, r := range p.runners.byName {
		if load := r.Load(); load != (Load{}) && !p.chosen[name] {
			p.nodes[r.Node] = p.nodes[r.Node].plus(load)
		}
	}
	return p.nodes
}
