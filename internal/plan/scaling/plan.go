package scaling

import (
	"cmp"
	"fmt"
	"slices"
)

// planned is a pool on its way through a pass.
type planned struct {
	Pool
	nodes    []string // those of its nodes that are usable, sorted, each once
	signal   Signal
	blind    string
	decides  bool // its number is decided in this pass
	takes    int  // otherwise: the runners that it has or will have in any case
	wish     wishes
	rec      wishes // what it would be given if it had no past
	hold     int    // what it is not lowered below for want of jobs
	desired  int
	scarce   string // what keeps it from one runner more
	overfull string // of what jobs, and pools whose number is not decided here, want more than there is
}

// Plan decides the number of runners of all pools: one pass, the same for the same input, whatever its order (SCALE-4).
// The results are in the order of the names.
//
// Pools that may use the same nodes are planned together, in tiers. Jobs come first, and are granted even when no node has
// room: a pending runner is how the cluster learns that it needs a node (SCALE-1). The remaining capacity goes to runners
// that are not released yet, to the one for blocked jobs, to warm runners, to headroom, in this order; see limits.fill
// for a tier that does not fit.
//
// A number rises at once. It falls when fewer have been enough throughout the stabilization window and the last step down
// is longer ago than the cooldown (SCALE-3), or to make room for other pools' jobs, then at once and by no more than these
// jobs need. It stays as it is when anything that it depends on could not be read (POOL-8).
//
// With no usable node, which may be a blip and may be a fleet that grows from nothing, a pool rises to its target and does
// not fall.
func Plan(in Input) []Result {
	pools := prepare(&in)
	for _, group := range groupsOf(pools) {
		planGroup(&in, group)
	}
	results := make([]Result, len(pools))
	for i, p := range pools {
		results[i] = p.result(&in)
	}
	return results
}

func prepare(in *Input) []*planned {
	pools := make([]*planned, len(in.Pools))
	for i := range in.Pools {
		p := &planned{Pool: in.Pools[i], signal: in.Signals.Pools[in.Pools[i].Name]}
		for _, name := range p.Nodes {
			if _, usable := in.Nodes[name]; usable {
				p.nodes = append(p.nodes, name)
			}
		}
		slices.Sort(p.nodes)
		p.nodes = slices.Compact(p.nodes)
		p.classify(in)
		p.Runner = Room{max(0, p.Runner.MilliCPU), max(0, p.Runner.Memory), max(0, p.Runner.Pods), max(0, p.Runner.VMs), max(0, p.Runner.Disk)}
		pools[i] = p
	}
	slices.SortFunc(pools, func(a, b *planned) int { return cmp.Compare(a.Name, b.Name) }) // SCALE-4
	return pools
}

func (p *planned) classify(in *Input) {
	working := max(0, occupied(p.signal))
	switch {
	case p.Terminating: // POOL-3
		p.takes = working
	case !p.Autoscaled:
		p.takes = max(p.Replicas, working)
	default:
		if p.blind = blindness(in, &p.Pool); p.blind != "" { // POOL-8
			p.takes = max(p.State.Desired, working)
			return
		}
		p.decides, p.wish = true, wishesOf(&p.Pool, p.signal)
	}
}

// groupsOf puts pools together that share a node, directly or through others. Groups have nothing to do with each other.
func groupsOf(pools []*planned) [][]*planned {
	leader := make([]int, len(pools))
	var find func(i int) int
	find = func(i int) int {
		if leader[i] != i {
			leader[i] = find(leader[i])
		}
		return leader[i]
	}
	first := map[string]int{}
	for i, p := range pools {
		leader[i] = i
		for _, node := range p.nodes {
			if other, seen := first[node]; seen {
				a, b := find(other), find(i)
				leader[max(a, b)] = min(a, b)
			} else {
				first[node] = i
			}
		}
	}
	groups := make([][]*planned, len(pools))
	for i, p := range pools {
		groups[find(i)] = append(groups[find(i)], p)
	}
	return slices.DeleteFunc(groups, func(g []*planned) bool { return len(g) == 0 })
}

// planGroup plans twice: first without history, which is what the history remembers; then with the runners that the
// history keeps, which other pools' jobs may use and their warm runners may not.
func planGroup(in *Input, group []*planned) {
	room := roomAfterLoad(in, group)
	for _, t := range tiers {
		for i, n := range room.fill(each(group, func(p *planned) int { return *t(&p.wish) })) {
			*t(&group[i].rec) = n
		}
	}
	for _, p := range group {
		if p.decides {
			p.recall(in)
		}
	}
	room = roomAfterLoad(in, group)
	for i, n := range room.fillHeld(group) {
		group[i].desired = group[i].wish.load + n
	}
	covered := each(group, func(p *planned) int { return max(0, p.hold-p.wish.load) })
	for _, t := range tiers {
		wish := make([]int, len(group))
		for i, p := range group { // runners that history keeps serve as desired ones
			n := *t(&p.rec)
			wish[i] = max(0, n-covered[i])
			covered[i] = max(0, covered[i]-n)
		}
		for i, n := range room.fill(wish) {
			group[i].desired += n
		}
	}
	for i, p := range group {
		p.scarce = room.inTheWay(i)
	}
}

// tiers are what the room that jobs leave is given to, in this order.
var tiers = []func(*wishes) *int{
	func(w *wishes) *int { return &w.blocked },
	func(w *wishes) *int { return &w.floor },
	func(w *wishes) *int { return &w.headRoom },
}

func each(group []*planned, of func(*planned) int) []int {
	numbers := make([]int, len(group))
	for i, p := range group {
		if p.decides {
			numbers[i] = of(p)
		}
	}
	return numbers
}

// roomAfterLoad is what is left when everything is taken that is not ours to refuse: the pools whose number is not decided
// here, and jobs.
func roomAfterLoad(in *Input, group []*planned) limits {
	room := limitsOf(group, in.Nodes)
	for i, p := range group {
		p.rec.load = p.wish.load // SCALE-1: past what the nodes have, too
		room.take(i, max(0, p.takes+p.wish.load-max(0, min(p.Elsewhere, occupied(p.signal)))))
	}
	for i, p := range group {
		p.overfull = room.overfull(i)
	}
	return room
}

// recall updates the pool's history and reads from it what is not released yet.
func (p *planned) recall(in *Input) {
	recommended := p.rec.total()
	if len(p.nodes) == 0 {
		recommended = max(recommended, min(p.State.Desired, p.Max)) // POOL-8: no node is no reason to shrink
	}
	p.State = remember(p.State, p.Stabilization, recommended, in.Now)
	p.hold = hold(p.State, &p.Pool, in.Now)
}

// fillHeld grants what pools have beyond their jobs and have not released yet. It yields only to newly arrived jobs of
// other pools, as far as these need the room (SCALE-1). Fewer nodes are no reason: they may be back before a runner has
// booted.
func (all limits) fillHeld(group []*planned) []int {
	held := each(group, func(p *planned) int { return max(0, p.hold-p.wish.load) })
	lent := make([]int64, len(all))
	for k, l := range all {
		var total, needed int64
		for i, p := range group {
			total = add(total, times(l.cost[i], held[i]))
			if p.decides {
				needed = add(needed, times(l.cost[i], max(0, p.wish.load-p.State.Desired)))
			}
		}
		lent[k] = max(0, total-needed-max(l.left, 0))
		l.left = max(l.left, 0) + lent[k]
	}
	granted := all.fill(held)
	for k, l := range all {
		l.left -= lent[k]
	}
	return granted
}

func (p *planned) result(in *Input) Result {
	r := Result{Name: p.Name, Desired: p.State.Desired, Blind: p.blind, State: p.State}
	switch {
	case p.decides:
		p.decide(in, &r)
	case !p.Autoscaled && !p.Terminating:
		r.Desired, r.Target, r.Recommended = p.Replicas, p.Replicas, p.Replicas
		if in.NodesProblem == "" && p.Problem == "" {
			r.Short = p.short(&r, p.takes-occupied(p.signal))
		}
		r.State = State{Desired: p.Replicas, Decided: true} // should it autoscale one day, it begins from here
	}
	r.State.Desired = r.Desired
	return r
}

func (p *planned) decide(in *Input, r *Result) {
	if p.State.Decided && p.desired < p.State.Desired {
		r.State.LastScaleDown = in.Now
	}
	r.Desired, r.Target, r.Recommended = p.desired, p.wish.total(), p.rec.total()
	r.State.Desired, r.State.Decided = p.desired, true
	rest := p.desired - p.wish.load
	part := func(n int) int {
		n = min(n, rest)
		rest -= n
		return n
	}
	r.Share = Share{Load: p.wish.load, Blocked: part(p.wish.blocked), Floor: part(p.wish.floor), HeadRoom: part(p.wish.headRoom), Cooldown: rest}
	if len(p.nodes) > 0 { // without a node it never falls, however often it is planned
		r.Next = nextStep(r.State, &p.Pool, r.Recommended, in.Now)
	}
	r.Short = p.short(r, p.wish.load-occupied(p.signal))
}

// short says why the nodes do not have room for all of the pool's runners; waiting is the number of runners that are needed for jobs and
// are not running yet.
func (p *planned) short(r *Result, waiting int) string {
	switch {
	case r.Target > 0 && len(p.nodes) == 0:
		return "no node matching the pool's template is ready and schedulable"
	case waiting > 0 && p.overfull != "":
		return fmt.Sprintf("insufficient %s on the pool's nodes for the minimum number of runners", p.overfull)
	case r.Desired < r.Target:
		return fmt.Sprintf("insufficient %[3]s on the pool's nodes: room for %[1]d of %[2]d desired runners", r.Desired, r.Target, p.scarce)
	}
	return ""
}
