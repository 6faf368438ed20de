package scaling

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// limit is one resource that the pools of a group share: the total, and the amount that one runner of each takes. A pool that takes none of
// it is not limited by it.
type limit struct {
	what string
	left int64 // negative when more is taken than there is
	cost []int64
	// closed when a tier got less than it asked for because of it: lower tiers get nothing of it.
	closed bool
}

type limits []*limit

// limitsOf says what a group of pools shares. For each set of nodes that some pool may use, and for all of them together:
// CPU, memory, pods, slots for virtual machines and ephemeral storage, which are shared by the pools that have no other nodes. For each
// size of runner on such a set: seats, whole runners that the nodes have room for one by one. A bigger runner takes a seat of each smaller size too.
//
// All of it is necessary and none of it sufficient: how runners of several sizes come to lie on the nodes is the scheduler's
// business, and only it knows.
func limitsOf(pools []*planned, nodes map[string]Room) limits {
	var sets [][]string
	everything := map[string]bool{}
	for _, p := range pools {
		if len(p.nodes) == 0 {
			continue
		}
		sets = append(sets, p.nodes)
		for _, node := range p.nodes {
			everything[node] = true
		}
	}
	if len(sets) == 0 {
		return nil
	}
	sets = append(sets, slices.Sorted(maps.Keys(everything)))
	slices.SortFunc(sets, slices.Compare)
	var all limits
	for _, set := range slices.CompactFunc(sets, slices.Equal) {
		all = append(all, limitsOn(set, pools, nodes)...)
	}
	return all
}

func limitsOn(set []string, pools []*planned, nodes map[string]Room) limits {
	var room Room
	for _, name := range set {
		node := nodes[name]
		room.MilliCPU = add(room.MilliCPU, max(0, node.MilliCPU))
		room.Memory = add(room.Memory, max(0, node.Memory))
		room.Pods = add(room.Pods, max(0, node.Pods))
		room.VMs = add(room.VMs, max(0, node.VMs))
		room.Disk = add(room.Disk, max(0, node.Disk))
	}
	cpu, memory, pods := newLimit("CPU", room.MilliCPU, pools), newLimit("memory", room.Memory, pools), newLimit("pods", room.Pods, pools)
	slots, disk := newLimit("slots for macOS virtual machines", room.VMs, pools), newLimit("ephemeral storage", room.Disk, pools)
	var sizes []Room
	inside := make([]bool, len(pools))
	for i, p := range pools {
		if inside[i] = within(p.nodes, set); !inside[i] {
			continue
		}
		cpu.cost[i], memory.cost[i], pods.cost[i] = p.Runner.MilliCPU, p.Runner.Memory, p.Runner.Pods
		slots.cost[i], disk.cost[i] = p.Runner.VMs, p.Runner.Disk // TEN-6
		if !slices.Contains(sizes, p.Runner) {
			sizes = append(sizes, p.Runner)
		}
	}
	found := limits{cpu, memory, pods, slots, disk}
	for _, size := range sizes {
		var seats int64
		for _, name := range set {
			seats = add(seats, seatsOn(nodes[name], size))
		}
		l := newLimit("contiguous room for a runner", seats, pools)
		for i, p := range pools {
			if inside[i] && p.Runner.holds(size) {
				l.cost[i] = 1
			}
		}
		found = append(found, l)
	}
	return found
}

// holds reports whether a runner of one size takes no less of anything than one of another.
func (r Room) holds(size Room) bool {
	return r.MilliCPU >= size.MilliCPU && r.Memory >= size.Memory && r.Pods >= size.Pods && r.VMs >= size.VMs && r.Disk >= size.Disk
}

func newLimit(what string, room int64, pools []*planned) *limit {
	return &limit{what: what, left: room, cost: make([]int64, len(pools))}
}

// seatsOn is how many runners of one size a node has room for.
func seatsOn(node, size Room) int64 {
	seats := int64(math.MaxInt64)
	for _, pair := range [][2]int64{
		{node.MilliCPU, size.MilliCPU}, {node.Memory, size.Memory}, {node.Pods, size.Pods}, {node.VMs, size.VMs}, {node.Disk, size.Disk},
	} {
		if pair[1] > 0 {
			seats = min(seats, max(pair[0], 0)/pair[1])
		}
	}
	return seats
}

// within reports whether a pool has nodes, all of them in set. Both are sorted.
func within(nodes, set []string) bool {
	for _, name := range nodes {
		if _, found := slices.BinarySearch(set, name); !found {
			return false
		}
	}
	return len(nodes) > 0
}

func (all limits) take(pool int, n int) {
	for _, l := range all {
		l.left = add(l.left, -times(l.cost[pool], n))
	}
}

// fits reports whether the pool may have one runner more.
func (all limits) fits(pool int) bool {
	for _, l := range all {
		if l.cost[pool] > 0 && (l.closed || l.left < l.cost[pool]) {
			return false
		}
	}
	return true
}

// inTheWay names what keeps a pool from one runner more; empty if nothing does.
func (all limits) inTheWay(pool int) string {
	for _, l := range all {
		if l.cost[pool] > 0 && (l.closed || l.left < l.cost[pool]) {
			return l.what
		}
	}
	return ""
}

// overfull names what the pool's runners take part in taking more of than there is; empty if nothing is.
func (all limits) overfull(pool int) string {
	for _, l := range all {
		if l.cost[pool] > 0 && l.left < 0 {
			return l.what
		}
	}
	return ""
}

// fill grants a tier. What fits is granted whole. Otherwise every pool gets the same share of its request, rounded down. The remainder is
// given one by one to those that lost most by rounding, by name among equals, until no pool can take more. A resource that has run out is
// closed to lower tiers.
func (all limits) fill(wish []int) []int {
	granted := make([]int, len(wish))
	give := func(i, n int) bool {
		granted[i] += n
		all.take(i, n)
		return n > 0
	}
	for {
		left := make([]int, len(wish))
		for i := range wish {
			if all.fits(i) {
				left[i] = wish[i] - granted[i]
			}
		}
		lost := make([]uint64, len(wish))
		scarcest := all.scarcest(left)
		moved := false
		for i := range left {
			whole := left[i]
			if scarcest != nil {
				whole, lost[i] = scarcest.portion(left[i])
			}
			moved = give(i, whole) || moved
			left[i] -= whole
		}
		for _, i := range byLoss(lost) {
			if left[i] > 0 && all.fits(i) {
				moved = give(i, 1) || moved
			}
		}
		if !moved {
			break
		}
	}
	all.close(wish, granted)
	return granted
}

// scarcest is the limit that lets the least share of the wishes through; nil if all of them fit.
func (all limits) scarcest(wish []int) *portioner {
	var least *portioner
	for _, l := range all {
		p := portioner{left: uint64(max(l.left, 0))}
		for i, n := range wish {
			p.desired += uint64(times(l.cost[i], n))
		}
		if p.desired > p.left && (least == nil || p.less(*least)) {
			least = &p
		}
	}
	return least
}

// portioner is a share: left of desired.
type portioner struct{ left, desired uint64 }

func (p portioner) less(q portioner) bool {
	pHigh, pLow := bits.Mul64(p.left, q.desired)
	qHigh, qLow := bits.Mul64(q.left, p.desired)
	return pHigh < qHigh || pHigh == qHigh && pLow < qLow
}

// portion is n's share, rounded down, and the remainder.
func (p portioner) portion(n int) (int, uint64) {
	high, low := bits.Mul64(uint64(n), p.left)
	whole, remainder := bits.Div64(high, low, p.desired) // high < desired, because left < desired and n < 2^63
	return int(whole), remainder
}

func byLoss(lost []uint64) []int {
	order := make([]int, len(lost))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost[b], lost[a]) })
	return order
}

func (all limits) close(wish, granted []int) {
	for _, l := range all {
		for i := range wish {
			if granted[i] < wish[i] && l.cost[i] > 0 && l.left < l.cost[i] {
				l.closed = true
			}
		}
	}
}

// add and times stop at the ends of what a number can hold. Costs and counts are not negative.
func add(a, b int64) int64 {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64 + 1
	}
	return sum
}

func times(cost int64, n int) int64 {
	high, low := bits.Mul64(uint64(cost), uint64(n))
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}
