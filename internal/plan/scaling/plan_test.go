package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// unit is a node's room for n runners of the size one.
func unit(n int64) Room { return Room{MilliCPU: 1000 * n, Memory: n << 30, Pods: 100} }

var one = Room{MilliCPU: 1000, Memory: 1 << 30, Pods: 1}

// situation is an Input that tests change a little.
type situation struct{ Input }

func situated(nodes ...Room) *situation {
	s := &situation{Input{Now: t0, Nodes: map[string]Room{}, Signals: Signals{At: t0, Pools: map[string]Signal{}}}}
	for i, room := range nodes {
		s.Nodes[fmt.Sprintf("n%d", i)] = room
	}
	return s
}

func (s *situation) nodeNames() []string {
	var names []string
	for name := range s.Nodes {
		names = append(names, name)
	}
	return names
}

// pool adds a pool that has desired runners and autoscales between minIdle and 100, on all nodes, with no past.
func (s *situation) pool(name string, desired, minIdle int, signal Signal, change ...func(*Pool)) *situation {
	p := Pool{
		Name: name, Autoscaled: true, MinIdle: minIdle, Max: 100, Cooldown: 5 * time.Minute, Stabilization: 3 * time.Minute,
		Runner: one, Nodes: s.nodeNames(),
		State: State{Desired: desired, Decided: true}, // as after a restart
	}
	for _, c := range change {
		c(&p)
	}
	s.Pools = append(s.Pools, p)
	s.Signals.Pools[name] = signal
	return s
}

func (s *situation) plan() map[string]Result {
	results := map[string]Result{}
	for _, r := range Plan(s.Input) {
		results[r.Name] = r
	}
	return results
}

func (s *situation) desired() map[string]int {
	desired := map[string]int{}
	for name, r := range s.plan() {
		desired[name] = r.Desired
	}
	return desired
}

// after hands results to the next pass.
func (s *situation) after(d time.Duration) *situation {
	results := s.plan()
	s.Now = s.Now.Add(d)
	s.Signals.Previous, s.Signals.At = s.Signals.At, s.Now
	for i := range s.Pools {
		s.Pools[i].State = results[s.Pools[i].Name].State
	}
	return s
}

func size(r Room) func(*Pool)  { return func(p *Pool) { p.Runner = r } }
func atMost(n int) func(*Pool) { return func(p *Pool) { p.Max = n } }
func fixed(replicas int) func(*Pool) {
	return func(p *Pool) { p.Autoscaled, p.Replicas = false, replicas }
}
func on(nodes ...string) func(*Pool) { return func(p *Pool) { p.Nodes = nodes } }

func TestPlan_TheTarget(t *testing.T) {
	for name, c := range map[string]struct {
		minIdle, max int
		signal       Signal
		want         int
	}{
		"nothing asked, nothing warm":             {0, 100, Signal{}, 0},
		"nothing asked, some warm":                {3, 100, Signal{}, 3},
		"SCALE1: occupied, and warm beyond":       {2, 100, Signal{Occupied: 5}, 7},
		"SCALE1: claims that have no session yet": {0, 100, Signal{Occupied: 2, Claimed: 5}, 5},
		"SCALE1: sessions that have no claim":     {0, 100, Signal{Occupied: 5, Claimed: 2}, 5},
		"SCALE1: what waits is load":              {1, 100, Signal{Occupied: 5, Queued: 4}, 10},
		"the first job wakes a sleeping pool":     {0, 100, Signal{Queued: 1}, 1},
		"SCALE2: blocked ask for one":             {0, 100, Signal{Blocked: 50}, 1},
		"SCALE2: beside those at work":            {0, 100, Signal{Occupied: 3, Blocked: 50}, 4},
		"SCALE2: which the warm one is":           {1, 100, Signal{Occupied: 3, Blocked: 50}, 4},
		"SCALE2: never past the ceiling":          {0, 3, Signal{Occupied: 3, Blocked: 50}, 3},
		"head-room: as many as the last hour":     {2, 100, Signal{Occupied: 3, P95: 10}, 12},
		"head-room: load is more":                 {2, 100, Signal{Occupied: 13, P95: 10}, 15},
		"head-room: not for a pool without floor": {0, 100, Signal{Occupied: 3, P95: 10}, 3},
		"SCALE3: load is capped":                  {2, 4, Signal{Occupied: 3, Queued: 9}, 4},
		"SCALE3: the floor is capped":             {2, 4, Signal{Occupied: 3}, 4},
		"SCALE3: head-room is capped":             {1, 4, Signal{Occupied: 1, P95: 50}, 4},
		"SCALE3: numbers beyond counting":         {0, 4, Signal{Occupied: 1 << 62, Claimed: 1 << 62, Queued: 1 << 62}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := situated(unit(1000), Room{Pods: 1000}).pool("p", 0, c.minIdle, c.signal, atMost(c.max))
			r := s.plan()["p"]
			require.Equal(t, c.want, r.Desired)
			require.Equal(t, c.want, r.Target)
			require.Equal(t, c.want, r.Recommended)
			require.Equal(t, c.want, r.Share.Total())
			require.Empty(t, r.Short)
			require.Empty(t, r.Blind)
		})
	}
}

func TestPlan_WhatOneNodeHasIsShared(t *testing.T) {
	for name, c := range map[string]struct {
		room int64
		s    func(*situation)
		want map[string]int
	}{
		"empty": {10, func(*situation) {}, map[string]int{}},
		"uncontended": {10, func(s *situation) {
			s.pool("a", 0, 2, Signal{Occupied: 3}).pool("b", 0, 1, Signal{Queued: 1, P95: 3})
		}, map[string]int{"a": 5, "b": 4}},
		"SCALE1: load is granted past what there is, the rest gets nothing": {10, func(s *situation) {
			s.pool("a", 0, 2, Signal{Occupied: 8, Queued: 4}).pool("b", 0, 5, Signal{Queued: 3})
		}, map[string]int{"a": 12, "b": 3}},
		"head-room is squeezed": {10, func(s *situation) {
			s.pool("a", 0, 1, Signal{Occupied: 2, P95: 6}).pool("b", 0, 1, Signal{Occupied: 2, P95: 6})
		}, map[string]int{"a": 5, "b": 5}}, // 3 + 2 of 4 each
		"the floor is squeezed, and head-room gets nothing": {10, func(s *situation) {
			s.pool("a", 0, 6, Signal{Occupied: 2}).pool("b", 0, 6, Signal{Occupied: 2, P95: 9})
		}, map[string]int{"a": 5, "b": 5}},
		"in proportion to what each wishes": {12, func(s *situation) {
			s.pool("a", 0, 12, Signal{}).pool("b", 0, 4, Signal{})
		}, map[string]int{"a": 9, "b": 3}},
		"nothing is lost by rounding": {10, func(s *situation) {
			s.pool("a", 0, 5, Signal{}).pool("b", 0, 5, Signal{}).pool("c", 0, 5, Signal{})
		}, map[string]int{"a": 4, "b": 3, "c": 3}},
		"who lost most by rounding is first": {10, func(s *situation) { // 1.36, 4.32, 4.32
			s.pool("a", 0, 3, Signal{}).pool("b", 0, 9, Signal{}).pool("c", 0, 10, Signal{})
		}, map[string]int{"a": 1, "b": 4, "c": 5}},
		"never more than desired": {1000, func(s *situation) {
			s.pool("a", 0, 3, Signal{Occupied: 1, P95: 7}).pool("b", 0, 0, Signal{})
		}, map[string]int{"a": 10, "b": 0}},
		"pools of a fixed size come first": {10, func(s *situation) {
			s.pool("a", 0, 8, Signal{}).pool("f", 0, 0, Signal{}, fixed(6))
		}, map[string]int{"a": 4, "f": 6}},
		"and their busy runners beyond their size take room": {10, func(s *situation) {
			s.pool("a", 0, 8, Signal{}).pool("f", 0, 0, Signal{Occupied: 9}, fixed(6))
		}, map[string]int{"a": 1, "f": 6}},
		"POOL3: a terminating pool is left alone, and what works of it takes room": {10, func(s *situation) {
			s.pool("a", 0, 8, Signal{}).pool("t", 5, 3, Signal{Occupied: 4, Queued: 9}, func(p *Pool) { p.Terminating = true })
		}, map[string]int{"a": 6, "t": 5}},
		"SCALE2: the one for blocked jobs is before anybody's warm ones": {10, func(s *situation) {
			s.pool("a", 0, 20, Signal{}).pool("w", 0, 0, Signal{Blocked: 3})
		}, map[string]int{"a": 9, "w": 1}},
		"SCALE2: and after anybody's jobs": {10, func(s *situation) {
			s.pool("a", 0, 0, Signal{Occupied: 7, Queued: 3}).pool("w", 0, 0, Signal{Blocked: 3})
		}, map[string]int{"a": 10, "w": 0}},
		"runners elsewhere take no room here": {10, func(s *situation) {
			s.pool("a", 0, 9, Signal{Occupied: 6}, func(p *Pool) { p.Elsewhere = 5 })
		}, map[string]int{"a": 15}},
		"no more of them than work": {10, func(s *situation) {
			s.pool("a", 0, 20, Signal{Occupied: 2, Queued: 2}, func(p *Pool) { p.Elsewhere = 5 })
		}, map[string]int{"a": 12}},
	} {
		t.Run(name, func(t *testing.T) {
			s := situated(unit(c.room))
			c.s(s)
			require.Equal(t, c.want, s.desired())
		})
	}
}

func TestPlan_ShapesAndNodes(t *testing.T) {
	two := Room{MilliCPU: 2000, Memory: 2 << 30, Pods: 1}
	mac := Room{MilliCPU: 1000, Memory: 1 << 30, Pods: 1, VMs: 1}
	for name, c := range map[string]struct {
		nodes []Room
		s     func(*situation)
		want  map[string]int
	}{
		"three nodes that have 3 each have no place for a second 2": {[]Room{unit(3), unit(3), unit(3)}, func(s *situation) {
			s.pool("big", 0, 9, Signal{}, size(two))
		}, map[string]int{"big": 3}},
		"what the big ones cannot use, the small may, in the same tier": {[]Room{unit(3), unit(3), unit(3)}, func(s *situation) {
			s.pool("big", 0, 9, Signal{}, size(two)).pool("small", 0, 9, Signal{})
		}, map[string]int{"big": 3, "small": 3}},
		"a big one takes a small one's seat": {[]Room{{MilliCPU: 10000, Memory: 100 << 30, Pods: 3}}, func(s *situation) {
			s.pool("big", 0, 1, Signal{Occupied: 2}, size(two)).pool("small", 0, 9, Signal{})
		}, map[string]int{"big": 2, "small": 1}}, // the warm big one and the small ones share the third pod
		"also where there is CPU to spare that no second one fits into": {[]Room{{3900, 99 << 30, 99, 0, 0}, {3900, 99 << 30, 99, 0, 0}, {3900, 99 << 30, 99, 0, 0}}, func(s *situation) {
			s.pool("big", 0, 0, Signal{Occupied: 2}, size(Room{2100, 1, 1, 0, 0})).pool("small", 0, 9, Signal{}, size(Room{2000, 1, 1, 0, 0}))
		}, map[string]int{"big": 2, "small": 1}},
		"what is shortest decides": {[]Room{{MilliCPU: 10000, Memory: 5 << 30, Pods: 7}}, func(s *situation) {
			s.pool("a", 0, 20, Signal{})
		}, map[string]int{"a": 5}},
		"what a floor lacks is not for head-room": {[]Room{unit(6)}, func(s *situation) {
			s.pool("big", 0, 3, Signal{}, size(two)).pool("small", 0, 1, Signal{P95: 1})
		}, map[string]int{"big": 2, "small": 1}},
		"CPU is what is short": {[]Room{{MilliCPU: 4000, Memory: 100 << 30, Pods: 100}}, func(s *situation) {
			s.pool("a", 0, 9, Signal{})
		}, map[string]int{"a": 4}},
		"pods are what is short": {[]Room{{MilliCPU: 400000, Memory: 100 << 30, Pods: 5}}, func(s *situation) {
			s.pool("a", 0, 9, Signal{})
		}, map[string]int{"a": 5}},
		"two slots a Mac, whatever else it has": {[]Room{{400000, 100 << 30, 100, 2, 0}, {400000, 100 << 30, 100, 2, 0}}, func(s *situation) {
			s.pool("a", 0, 9, Signal{Occupied: 1}, size(mac)).pool("b", 0, 9, Signal{}, size(mac))
		}, map[string]int{"a": 3, "b": 1}},
		"a Mac without a slot that can be used has no room": {[]Room{{400000, 100 << 30, 100, 0, 0}, {400000, 100 << 30, 100, 1, 0}}, func(s *situation) {
			s.pool("a", 0, 9, Signal{}, size(mac))
		}, map[string]int{"a": 1}},
		"who needs no slot is not limited by them": {[]Room{{8000, 100 << 30, 100, 2, 0}}, func(s *situation) {
			s.pool("a", 0, 2, Signal{}, size(mac)).pool("b", 0, 3, Signal{})
		}, map[string]int{"a": 2, "b": 3}},
		"TEN-6 disk is what is short": {[]Room{{400000, 100 << 30, 100, 0, 25 << 30}, {400000, 100 << 30, 100, 0, 25 << 30}}, func(s *situation) {
			s.pool("a", 0, 10, Signal{}, size(Room{1000, 1 << 30, 1, 0, 10 << 30}))
		}, map[string]int{"a": 4}},
		"TEN-6 what big ones write is not there for small ones": {[]Room{{400000, 100 << 30, 100, 0, 40 << 30}}, func(s *situation) {
			s.pool("big", 0, 0, Signal{Occupied: 1}, size(Room{1000, 1 << 30, 1, 0, 25 << 30})).pool("small", 0, 9, Signal{}, size(Room{1000, 1 << 30, 1, 0, 10 << 30}))
		}, map[string]int{"big": 1, "small": 1}},
		"who requests no disk is not limited by it": {[]Room{{8000, 100 << 30, 100, 0, 0}}, func(s *situation) {
			s.pool("a", 0, 0, Signal{Queued: 5}, size(Room{1000, 1 << 30, 1, 0, 0}))
		}, map[string]int{"a": 5}},
		"a pool with nodes of its own has them for itself": {[]Room{unit(4), unit(6)}, func(s *situation) {
			s.pool("a", 0, 9, Signal{}, on("n0")).pool("b", 0, 9, Signal{}, on("n1"))
		}, map[string]int{"a": 4, "b": 6}},
		"a pool on one of two nodes, and one that may use both": {[]Room{unit(4), unit(6)}, func(s *situation) {
			s.pool("a", 0, 0, Signal{Occupied: 4}, on("n0")).pool("b", 0, 20, Signal{})
		}, map[string]int{"a": 4, "b": 6}},
		"pools that share one node of three": {[]Room{unit(4), unit(4), unit(4)}, func(s *situation) {
			s.pool("a", 0, 20, Signal{}, on("n0", "n1")).pool("b", 0, 20, Signal{}, on("n1", "n2"))
		}, map[string]int{"a": 6, "b": 6}},
		"a node twice, and one that is not usable": {[]Room{unit(4)}, func(s *situation) {
			s.pool("a", 0, 20, Signal{}, on("n0", "n0", "gone"))
		}, map[string]int{"a": 4}},
		"a node twice is one, beside a pool that has more": {[]Room{unit(4), unit(4)}, func(s *situation) {
			s.pool("a", 0, 20, Signal{}, on("n0", "n0")).pool("b", 0, 0, Signal{})
		}, map[string]int{"a": 4, "b": 0}},
		"who is not short of it keeps its head-room": {[]Room{unit(20), unit(1)}, func(s *situation) {
			s.pool("small", 0, 1, Signal{P95: 3}).pool("stuck", 0, 5, Signal{}, on("n1"), size(Room{MilliCPU: 1, Memory: 1 << 30, Pods: 1}))
		}, map[string]int{"small": 4, "stuck": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := situated(c.nodes...)
			c.s(s)
			require.Equal(t, c.want, s.desired())
			for name, r := range s.plan() {
				require.Equal(t, c.want[name], r.Recommended)
			}
		})
	}
}

func TestPlan_SaysWhatIsShort(t *testing.T) {
	s := situated(unit(3)).pool("a", 0, 5, Signal{})
	require.Equal(t, "insufficient CPU on the pool's nodes: room for 3 of 5 desired runners", s.plan()["a"].Short)
	s = situated(Room{MilliCPU: 9000, Memory: 3 << 30, Pods: 9}).pool("a", 0, 1, Signal{Queued: 4}).pool("b", 0, 0, Signal{})
	require.Equal(t, "insufficient memory on the pool's nodes for the minimum number of runners", s.plan()["a"].Short)
	require.Empty(t, s.plan()["b"].Short, "it wants none")
	s = situated().pool("a", 0, 5, Signal{}).pool("f", 0, 0, Signal{}, fixed(2)).pool("none", 0, 0, Signal{})
	for _, name := range []string{"a", "f"} {
		require.Equal(t, "no node matching the pool's template is ready and schedulable", s.plan()[name].Short)
	}
	require.Empty(t, s.plan()["none"].Short)
	s = situated(Room{99000, 99 << 30, 99, 2, 0}).pool("a", 0, 5, Signal{}, size(Room{1000, 1 << 30, 1, 1, 0}))
	require.Equal(t, "insufficient slots for macOS virtual machines on the pool's nodes: room for 2 of 5 desired runners", s.plan()["a"].Short)
	s = situated(unit(3)).pool("f", 0, 0, Signal{}, fixed(4))
	require.Contains(t, s.plan()["f"].Short, "insufficient CPU")
	s = situated(unit(3)).pool("f", 0, 0, Signal{Occupied: 4}, fixed(4))
	require.Empty(t, s.plan()["f"].Short, "all of them are there")
	s.NodesProblem, s.Nodes = "no list", nil
	require.Empty(t, s.plan()["f"].Short, "nobody knows")
}

func TestPlan_SaysWhy(t *testing.T) {
	s := situated(unit(100)).pool("a", 20, 2, Signal{Occupied: 3, Blocked: 1, P95: 6})
	require.Equal(t, "20: 3 for jobs, 1 for blocked jobs, 1 idle reserve, 3 for the last hour's demand, 12 not scaled down yet", s.plan()["a"].Why())
	s.Signals.Problem = "no route to host"
	require.Equal(t, "20, unchanged: no route to host", s.plan()["a"].Why())
	require.Equal(t, "0: no jobs", situated(unit(1)).pool("a", 0, 0, Signal{}).plan()["a"].Why())
}

// POOL-8: one thing that could not be read, and the number stays, up and down.
func TestPlan_POOL8_ANumberStaysWhenSomethingCouldNotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*situation)
		want   string
	}{
		"no signals":             {func(s *situation) { s.Signals.Problem = "asking the server: refused" }, "asking the server: refused"},
		"signals without a time": {func(s *situation) { s.Signals.At = time.Time{} }, "the server's data has no timestamp"},
		"old signals": {func(s *situation) { s.Signals.At = t0.Add(-StaleAfter - 1) },
			"the server's data is more than 30s old: check for a caching proxy and for clock skew"},
		"signals that go back":       {func(s *situation) { s.Signals.Previous = t0.Add(1) }, "the server's data is older than the previous one"},
		"a pool that is not in them": {func(s *situation) { delete(s.Signals.Pools, "p") }, "the server's response does not include this pool"},
		"nonsense": {func(s *situation) { s.Signals.Pools["p"] = Signal{Occupied: -1} },
			"the server returned a negative number for this pool"},
		"no nodes read":        {func(s *situation) { s.NodesProblem, s.Nodes = "listing nodes: forbidden", nil }, "listing nodes: forbidden"},
		"no runtime class":     {func(s *situation) { s.Pools[0].Problem = "RuntimeClass kata: not found" }, "RuntimeClass kata: not found"},
		"9.2: no ceiling":      {func(s *situation) { s.Pools[0].Max = 0 }, "autoscaling has no maximum: set spec.autoscaling.maxReplicas"},
		"a size below nothing": {func(s *situation) { s.Pools[0].Runner.Memory = -1 }, "the size of its runners is negative: correct spec.resources"},
	} {
		for _, desired := range []int{0, 5, 90} { // more is wanted, and less
			t.Run(fmt.Sprintf("%s, %d", name, desired), func(t *testing.T) {
				s := situated(unit(100)).pool("p", desired, 2, Signal{Occupied: 5, Queued: 10, P95: 30})
				s.Pools[0].State.LastScaleDown = t0.Add(-time.Hour)
				before := s.Pools[0].State
				c.change(s)
				r := s.plan()["p"]
				require.Equal(t, desired, r.Desired)
				require.Equal(t, before, r.State, "nothing that was remembered changes either")
				require.Equal(t, c.want, r.Blind)
			})
		}
	}
	s := situated(unit(100)).pool("p", 0, 2, Signal{Occupied: 5})
	s.Signals.At = t0.Add(-StaleAfter)
	require.Equal(t, 7, s.plan()["p"].Desired, "not too old")
	s.Signals.Previous = s.Signals.At
	require.Equal(t, 7, s.plan()["p"].Desired, "the same once more")
	s.Signals.Problem, s.Pools[0].State.Decided = "down", false
	require.False(t, s.plan()["p"].State.Decided, "what was never seen is not decided")
}

// POOL-8: what one pool lacks does not blind the others, and the blind one's runners take their room.
func TestPlan_POOL8_ABlindPoolTakesItsRoomAndBlocksNoOther(t *testing.T) {
	s := situated(unit(10)).pool("a", 0, 9, Signal{}).pool("b", 6, 9, Signal{})
	delete(s.Signals.Pools, "b")
	require.Equal(t, map[string]int{"a": 4, "b": 6}, s.desired())
}

// POOL-8: no usable node may be a blip: nothing falls, for as long as it lasts. It may also be a fleet that has to grow from
// nothing: targets are granted.
func TestPlan_POOL8_NoUsableNodeShrinksNothing(t *testing.T) {
	s := situated().pool("big", 50, 0, Signal{Occupied: 1}).pool("new", 0, 2, Signal{Queued: 3, P95: 9})
	for range 100 {
		require.Equal(t, map[string]int{"big": 50, "new": 11}, s.desired())
		s.after(10 * time.Second)
	}
	require.Equal(t, "no node matching the pool's template is ready and schedulable", s.plan()["new"].Short)

	s.Nodes["n"] = unit(100) // the blip is over: what was held begins its window now
	for i := range s.Pools {
		s.Pools[i].Nodes = s.nodeNames()
	}
	require.Equal(t, map[string]int{"big": 50, "new": 11}, s.desired())
	for range 19 {
		s.after(10 * time.Second)
	}
	require.Equal(t, 1, s.desired()["big"])
	s.Pools[0].Max = 10
	s.Nodes = nil
	require.LessOrEqual(t, s.desired()["big"], 10, "SCALE-3 holds without nodes, too")
}

// Nodes that are gone, for a moment or for good, remove no runner at once; and the idle runners of other pools are no reason to remove one
// either. Only jobs are.
func TestPlan_POOL8_FewerNodesTakeNothingAtOnce(t *testing.T) {
	s := situated(unit(10), unit(10), unit(10)).pool("a", 15, 15, Signal{}).pool("b", 15, 15, Signal{})
	s.after(time.Second)
	delete(s.Nodes, "n1")
	delete(s.Nodes, "n2")
	require.Equal(t, map[string]int{"a": 15, "b": 15}, s.desired())
	require.Equal(t, 5, s.plan()["a"].Recommended, "but it is what it comes to")

	s.Signals.Pools["b"] = Signal{Occupied: 15, Queued: 2} // b needs two more: a gives two
	require.Equal(t, map[string]int{"a": 13, "b": 17}, s.desired())
	s.after(time.Second)
	require.Equal(t, map[string]int{"a": 13, "b": 17}, s.desired(), "and not two more at each pass")
}

// SCALE-1: warm capacity yields to jobs of another pool at once, whatever cooldown and window say; by no more than they
// need; and it does not come back before the other pool has released it.
func TestPlan_SCALE1_WarmYieldsToJobsAtOnceAndNoMoreThanNeeded(t *testing.T) {
	s := situated(unit(10)).pool("a", 10, 10, Signal{}).pool("b", 0, 0, Signal{})
	s.Pools[0].State.LastScaleDown = t0.Add(-time.Second)
	s.after(time.Second)
	s.Signals.Pools["b"] = Signal{Queued: 3}
	require.Equal(t, map[string]int{"a": 7, "b": 3}, s.desired())
	s.after(time.Second)
	require.Equal(t, t0.Add(time.Second), s.Pools[0].State.LastScaleDown)
	s.Signals.Pools["b"] = Signal{}
	for range 17 {
		require.Equal(t, map[string]int{"a": 7, "b": 3}, s.desired(), "at %s", s.Now)
		s.after(10 * time.Second)
	}
	s.after(10 * time.Second)
	require.Equal(t, map[string]int{"a": 10, "b": 0}, s.desired(), "in one pass")

	s = situated(unit(10)).pool("a", 10, 0, Signal{Occupied: 10}).pool("b", 0, 5, Signal{Queued: 3})
	require.Equal(t, map[string]int{"a": 10, "b": 3}, s.desired(), "jobs do not yield to jobs")
	s = situated(unit(10)).pool("a", 6, 0, Signal{}).pool("b", 0, 5, Signal{Queued: 3})
	require.Equal(t, map[string]int{"a": 6, "b": 4}, s.desired(), "there was room for the jobs")
}

func TestPlan_SCALE3_DownAfterWindowAndCooldown(t *testing.T) {
	quiet := func() *situation { return situated(unit(100)).pool("p", 10, 1, Signal{}) }
	for name, c := range map[string]struct {
		change func(*Pool)
		falls  time.Duration
	}{
		"the window":             {func(*Pool) {}, 3 * time.Minute},
		"the cooldown is longer": {func(p *Pool) { p.State.LastScaleDown = t0.Add(-time.Minute) }, 4 * time.Minute},
		"the cooldown is over":   {func(p *Pool) { p.State.LastScaleDown = t0.Add(-time.Hour) }, 3 * time.Minute},
		"no window":              {func(p *Pool) { p.Stabilization = 0 }, time.Second},
		"neither": {func(p *Pool) {
			p.Stabilization, p.Cooldown, p.State.LastScaleDown = 0, 0, t0.Add(-time.Millisecond)
		}, time.Second},
		"and after a gap": {func(p *Pool) {
			p.State.Seen, p.State.Window = t0.Add(-StaleAfter-1), []Mark{{t0.Add(-time.Minute), 1}}
		}, 3 * time.Minute},
		"but not after a short one": {func(p *Pool) {
			p.State.Seen, p.State.Window = t0.Add(-StaleAfter), []Mark{{t0.Add(-time.Minute), 10}, {t0.Add(-StaleAfter), 1}}
		}, 2 * time.Minute},
		"a time in the future is now": {func(p *Pool) { p.State.LastScaleDown = t0.Add(time.Hour) }, 5 * time.Minute},
		"also in the window": {func(p *Pool) {
			p.State.Seen, p.State.Window = t0.Add(time.Hour), []Mark{{t0.Add(time.Hour), 10}}
		}, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			c.change(&s.Pools[0])
			for s.Now.Sub(t0) < c.falls {
				r := s.plan()["p"]
				require.Equal(t, 10, r.Desired, "after %s", s.Now.Sub(t0))
				if s.Now.After(t0) { // the first pass may have set right what was wrong
					require.Equal(t, t0.Add(c.falls), r.Next)
				}
				s.after(time.Second)
			}
			r := s.plan()["p"]
			require.Equal(t, 1, r.Desired, "after %s", s.Now.Sub(t0))
			require.Equal(t, s.Now, r.State.LastScaleDown)
			require.Zero(t, r.Next)
			require.Equal(t, 1, r.Share.Total())
		})
	}
}

// SCALE-3: a step down goes no lower than the maximum that was needed in the window, and returning demand keeps it up.
func TestPlan_SCALE3_TheWindowsMostCounts(t *testing.T) {
	s := situated(unit(100)).pool("p", 20, 0, Signal{Occupied: 20}, func(p *Pool) { p.Cooldown = 0 })
	s.after(time.Second)
	for _, occupied := range []int{5, 8, 3} {
		s.Signals.Pools["p"] = Signal{Occupied: occupied}
		s.after(20 * time.Second) // seen at 1 s, 21 s, 41 s
	}
	seen := map[int]time.Duration{}
	for desired := 20; desired > 3; s.after(time.Second) {
		if now := s.desired()["p"]; now != desired {
			seen[now], desired = s.Now.Sub(t0), now
		}
	}
	require.Equal(t, map[int]time.Duration{8: 3 * time.Minute, 3: 3*time.Minute + 21*time.Second}, seen)
}

// SCALE-3: the ceiling is an order; it needs no idleness.
func TestPlan_SCALE3_ALoweredCeilingIsObeyedAtOnce(t *testing.T) {
	s := situated(unit(100)).pool("p", 20, 1, Signal{Occupied: 9}, atMost(6))
	s.Pools[0].State.LastScaleDown = t0
	require.Equal(t, 6, s.desired()["p"])
}

func TestPlan_ScaleToZeroAndBack(t *testing.T) {
	s := situated(unit(10)).pool("p", 0, 0, Signal{Queued: 1})
	require.Equal(t, 1, s.desired()["p"])
	s.after(time.Second).Signals.Pools["p"] = Signal{Occupied: 1, P95: 1}
	s.after(time.Second).Signals.Pools["p"] = Signal{P95: 1}
	for range 17 {
		s.after(10 * time.Second)
		require.Equal(t, 1, s.desired()["p"])
	}
	s.after(10 * time.Second)
	require.Equal(t, 0, s.desired()["p"])
	s.after(time.Second).Signals.Pools["p"] = Signal{Blocked: 7}
	require.Equal(t, 1, s.desired()["p"], "the cooldown holds nothing down")
}

// Impossibly large numbers do not overflow.
func TestPlan_BeyondCounting(t *testing.T) {
	huge := Room{MilliCPU: 1 << 62, Memory: 1 << 62, Pods: 1 << 62}
	s := situated(huge, huge, huge, Room{-5, -5, -5, 0, 0}).pool("a", 0, 50, Signal{}).pool("b", 0, 10000, Signal{}, size(huge), atMost(10000)).
		pool("c", 0, 5, Signal{Occupied: 10000}, size(huge), atMost(10000))
	r := s.plan()
	require.Equal(t, 0, r["a"].Desired)
	require.Equal(t, 0, r["b"].Desired)
	require.Equal(t, 10000, r["c"].Desired)
	s = situated(unit(5)).pool("nothing", 0, 7, Signal{}, size(Room{}))
	require.Equal(t, 7, s.desired()["nothing"], "what takes nothing fits everywhere")
}
