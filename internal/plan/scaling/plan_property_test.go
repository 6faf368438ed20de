package scaling

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawSignal(t *rapid.T) Signal {
	few := rapid.IntRange(0, 12)
	return Signal{
		Occupied: few.Draw(t, "occupied"), Claimed: few.Draw(t, "claimed"), Queued: max(0, few.Draw(t, "queued")-6),
		Blocked: max(0, few.Draw(t, "blocked")-9), P95: few.Draw(t, "p95"),
	}
}

func drawState(t *rapid.T) State {
	s := State{Desired: rapid.IntRange(0, 20).Draw(t, "desired"), Decided: rapid.IntRange(0, 9).Draw(t, "decided") > 0}
	if !s.Decided {
		return State{}
	}
	ago := func(what string, most int) time.Time {
		return t0.Add(-time.Duration(rapid.IntRange(-1, most).Draw(t, what)) * time.Second)
	}
	if rapid.Bool().Draw(t, "lowered") {
		s.LastScaleDown = ago("lowered", 90)
	}
	if rapid.Bool().Draw(t, "seen") {
		s.Seen = ago("seen", 40)
		at, count := s.Seen.Add(-time.Minute), 20
		for at.Before(s.Seen) {
			at = at.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "gap")) * time.Second)
			if count -= rapid.IntRange(1, 8).Draw(t, "less"); count >= 0 {
				s.Window = append(s.Window, Mark{at, count})
			}
		}
	}
	return s
}

func drawPool(t *rapid.T, name string, nodes []string, sizes []Room) Pool {
	p := Pool{
		Name: name, Autoscaled: rapid.IntRange(0, 4).Draw(t, "autoscaled") > 0, Terminating: rapid.IntRange(0, 7).Draw(t, "terminating") == 0,
		Replicas: rapid.IntRange(0, 8).Draw(t, "replicas"), MinIdle: rapid.IntRange(0, 6).Draw(t, "minIdle"), Max: rapid.IntRange(1, 20).Draw(t, "max"),
		Cooldown:      time.Duration(rapid.IntRange(0, 2).Draw(t, "cooldown")) * 30 * time.Second,
		Stabilization: time.Duration(rapid.IntRange(0, 2).Draw(t, "stabilization")) * 30 * time.Second,
		Runner:        rapid.SampledFrom(sizes).Draw(t, "runner"), State: drawState(t),
		Elsewhere: max(0, rapid.IntRange(0, 12).Draw(t, "elsewhere")-8),
	}
	for _, node := range nodes {
		if rapid.IntRange(0, 3).Draw(t, "uses "+node) > 0 {
			p.Nodes = append(p.Nodes, node)
		}
	}
	if rapid.IntRange(0, 14).Draw(t, "problem") == 0 {
		p.Problem = "no runtime class"
	}
	return p
}

var someSizes = []Room{one, {MilliCPU: 2000, Memory: 2 << 30, Pods: 1}, {MilliCPU: 1000, Memory: 4 << 30, Pods: 1}, {MilliCPU: 4000, Memory: 1 << 30, Pods: 1}, {MilliCPU: 1000, Memory: 1 << 30, Pods: 1, VMs: 1}, {MilliCPU: 1000, Memory: 1 << 30, Pods: 1, Disk: 3 << 30}}

func drawInput(t *rapid.T, sizes ...Room) Input {
	in := Input{Now: t0, Nodes: map[string]Room{}, Signals: Signals{At: t0.Add(-time.Second), Pools: map[string]Signal{}}}
	var names []string
	for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		names = append(names, fmt.Sprintf("n%d", i))
		in.Nodes[names[i]] = Room{
			MilliCPU: rapid.Int64Range(0, 12).Draw(t, "cpu") * 1000, Memory: rapid.Int64Range(0, 12).Draw(t, "memory") << 30, Pods: rapid.Int64Range(0, 12).Draw(t, "pods"), VMs: rapid.Int64Range(0, 3).Draw(t, "slots"),
			Disk: rapid.Int64Range(0, 12).Draw(t, "disk") << 30,
		}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "pools") {
		p := drawPool(t, fmt.Sprintf("p%d", i), names, sizes)
		in.Pools = append(in.Pools, p)
		if rapid.IntRange(0, 14).Draw(t, "known") > 0 {
			in.Signals.Pools[p.Name] = drawSignal(t)
		}
	}
	return in
}

func byName(in Input) map[string]Pool {
	pools := map[string]Pool{}
	for _, p := range in.Pools {
		pools[p.Name] = p
	}
	return pools
}

func decided(p Pool, r Result) bool { return p.Autoscaled && !p.Terminating && r.Blind == "" }

func loadOf(in Input, p Pool) int {
	s := in.Signals.Pools[p.Name]
	return min(p.Max, max(s.Occupied, s.Claimed)+s.Queued)
}

func TestPlan_SCALE1_SCALE3_JobsAreFundedAndBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, someSizes...)
		results := Plan(in)
		pools := byName(in)
		require.Len(t, results, len(pools))
		newcomers := 0
		for name, p := range pools {
			i := slices.IndexFunc(results, func(r Result) bool { return r.Name == name })
			if decided(p, results[i]) && loadOf(in, p) > p.State.Desired {
				newcomers++
			}
		}
		for _, r := range results {
			p := pools[r.Name]
			require.Equal(t, r.Desired, r.State.Desired)
			if p.Terminating || p.Autoscaled && r.Blind != "" {
				require.Equal(t, p.State, r.State, "POOL-3, POOL-8")
				continue
			}
			if !p.Autoscaled {
				require.Equal(t, p.Replicas, r.Desired)
				continue
			}
			require.GreaterOrEqual(t, r.Desired, loadOf(in, p), "SCALE-1")
			require.GreaterOrEqual(t, r.Recommended, loadOf(in, p), "SCALE-1")
			require.LessOrEqual(t, r.Desired, p.Max, "SCALE-3")
			require.LessOrEqual(t, r.Recommended, r.Target)
			require.Equal(t, r.Desired, r.Share.Total())
			require.GreaterOrEqual(t, min(r.Share.Load, r.Share.Blocked, r.Share.Floor, r.Share.HeadRoom, r.Share.Cooldown), 0)
			require.LessOrEqual(t, r.Share.Blocked, 1, "SCALE-2")
			if !p.State.Decided || r.Desired >= min(p.State.Desired, p.Max) {
				continue
			}
			require.Equal(t, t0, r.State.LastScaleDown)
			if newcomers > 0 {
				continue // room for jobs of others: see the property below
			}
			require.NotEmpty(t, p.Nodes, "POOL-8: no node is no reason")
			require.False(t, !p.State.LastScaleDown.IsZero() && max(0, t0.Sub(p.State.LastScaleDown)) < p.Cooldown, "SCALE-3: the cooldown")
			require.False(t, p.State.Seen.IsZero() || t0.Sub(p.State.Seen) > StaleAfter, "SCALE-3: the window has just begun")
			for _, mark := range p.State.Window {
				if max(0, t0.Sub(mark.At)) < p.Stabilization {
					require.LessOrEqual(t, min(mark.Count, p.Max), r.Desired, "SCALE-3: the window")
				}
			}
		}
	})
}

// SCALE-1: idle runners give way only as far as the jobs of others need. With runners of one size on nodes that all pools may use, that can
// be counted.
func TestPlan_SCALE1_NoMoreIsTakenThanJobsNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, one)
		for i := range in.Pools {
			in.Pools[i].Nodes = slices.Sorted(maps.Keys(in.Nodes))
		}
		needed, taken := 0, 0
		for _, r := range Plan(in) {
			p := byName(in)[r.Name]
			if !decided(p, r) {
				continue
			}
			needed += max(0, loadOf(in, p)-p.State.Desired)
			if len(p.Nodes) > 0 {
				state := remember(p.State, p.Stabilization, r.Recommended, in.Now)
				taken += max(0, hold(state, &p, in.Now)-r.Desired)
			}
		}
		require.LessOrEqual(t, taken, needed)
	})
}

// SCALE-4: pools and nodes in another order make the same plan, and the input is not written to.
func TestPlan_SCALE4_TheOrderOfTheInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, someSizes...)
		other := in
		other.Pools = rapid.Permutation(in.Pools).Draw(t, "order")
		copies := fmt.Sprintf("%+v", in)
		for i := range other.Pools {
			other.Pools[i].Nodes = slices.Clone(other.Pools[i].Nodes)
			slices.Reverse(other.Pools[i].Nodes)
		}
		require.Equal(t, Plan(in), Plan(other))
		require.Equal(t, copies, fmt.Sprintf("%+v", in))
	})
}

// Idle runners get at most what jobs, and pools of a fixed size, leave of each set of nodes.
func TestPlan_SCALE1_WarmRunnersFitIntoWhatJobsLeave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, someSizes...)
		results := Plan(in)
		pools := byName(in)
		for _, of := range in.Pools {
			if len(of.Nodes) == 0 {
				continue
			}
			var room, taken, warm Room
			plus := func(r *Room, size Room, n int) {
				r.MilliCPU += size.MilliCPU * int64(n)
				r.Memory += size.Memory * int64(n)
				r.Pods += size.Pods * int64(n)
				r.VMs += size.VMs * int64(n)
			}
			for _, node := range of.Nodes {
				plus(&room, in.Nodes[node], 1)
			}
			for _, r := range results {
				p := pools[r.Name]
				if len(p.Nodes) == 0 || slices.ContainsFunc(p.Nodes, func(n string) bool { return !slices.Contains(of.Nodes, n) }) {
					continue
				}
				s := in.Signals.Pools[p.Name]
				working := max(s.Occupied, s.Claimed)
				has := working
				switch {
				case p.Terminating:
				case !p.Autoscaled:
					has = max(working, p.Replicas)
				case r.Blind != "":
					has = max(working, p.State.Desired)
				default:
					has = loadOf(in, p)
					plus(&warm, p.Runner, r.Recommended-has)
				}
				plus(&taken, p.Runner, max(0, has-min(p.Elsewhere, working)))
			}
			require.LessOrEqual(t, warm.MilliCPU, max(0, room.MilliCPU-taken.MilliCPU))
			require.LessOrEqual(t, warm.Memory, max(0, room.Memory-taken.Memory))
			require.LessOrEqual(t, warm.Pods, max(0, room.Pods-taken.Pods))
			require.LessOrEqual(t, warm.VMs, max(0, room.VMs-taken.VMs))
		}
	})
}

// With runners of one size on nodes that all may use, a plan can be computed by hand. All of the room is given out, and
// each tier is split to within one runner of its proportion.
func TestPlan_TiersAreSplitInProportionAndNothingIsStranded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(0, 60).Draw(t, "room")
		s := situated(unit(int64(room)))
		n := rapid.IntRange(1, 6).Draw(t, "pools")
		type tier struct{ wish, got [6]int }
		var load, total int
		var floor, headRoom tier
		for i := range n {
			signal := Signal{Occupied: rapid.IntRange(0, 8).Draw(t, "occupied"), P95: rapid.IntRange(0, 20).Draw(t, "p95")}
			minIdle := rapid.IntRange(0, 20).Draw(t, "minIdle")
			s.pool(fmt.Sprintf("p%d", i), 0, minIdle, signal)
			s.Pools[i].State = State{}
			load += signal.Occupied
			floor.wish[i] = minIdle
			if minIdle > 0 {
				headRoom.wish[i] = max(0, signal.P95-signal.Occupied)
			}
			total += signal.Occupied + floor.wish[i] + headRoom.wish[i]
		}
		given := 0
		for i, r := range Plan(s.Input) {
			floor.got[i], headRoom.got[i] = r.Share.Floor, r.Share.HeadRoom
			given += r.Desired
		}
		require.Equal(t, min(total, max(load, room)), given, "nothing is stranded, and no more is given")
		left := max(0, room-load)
		for _, tier := range []tier{floor, headRoom} {
			asked := 0
			for _, w := range tier.wish {
				asked += w
			}
			for i, w := range tier.wish {
				if asked > 0 {
					fair := float64(w) * min(1, float64(left)/float64(asked))
					require.InDelta(t, fair, tier.got[i], 1, "pool %d of %v: %v of %d", i, tier.wish, tier.got, left)
				}
			}
			left = max(0, left-asked)
		}
	})
}

// POOL-8: on any error every number stays.
func TestPlan_POOL8_AnyReadErrorLeavesEveryNumber(t *testing.T) {
	errors := map[string]func(*Input){
		"signals":  func(in *Input) { in.Signals.Problem = "down" },
		"no time":  func(in *Input) { in.Signals.At = time.Time{} },
		"stale":    func(in *Input) { in.Signals.At = in.Now.Add(-time.Hour) },
		"backward": func(in *Input) { in.Signals.Previous = in.Signals.At.Add(1) },
		"nodes":    func(in *Input) { in.NodesProblem, in.Nodes = "down", nil },
		"missing":  func(in *Input) { in.Signals.Pools = nil },
		"problems": func(in *Input) {
			for i := range in.Pools {
				in.Pools[i].Problem = "unread"
			}
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, someSizes...)
		errors[rapid.SampledFrom([]string{"signals", "no time", "stale", "backward", "nodes", "missing", "problems"}).Draw(t, "error")](&in)
		results := Plan(in)
		for _, r := range results {
			if p := byName(in)[r.Name]; p.Autoscaled {
				require.Equal(t, p.State, r.State)
				require.True(t, p.Terminating || r.Blind != "")
			}
		}
	})
}

// A pool over time: it is at its target in the pass that sees it, never below the most of the window, and at rest once
// what it follows is at rest.
func TestPlan_SCALE3_ASimulatedPoolFollowsDemandAndDoesNotSwing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.IntRange(0, 60).Draw(t, "window")) * time.Second
		cooldown := time.Duration(rapid.IntRange(0, 60).Draw(t, "cooldown")) * time.Second
		s := situated(unit(1000), Room{Pods: 1000}).pool("p", 0, rapid.IntRange(0, 3).Draw(t, "minIdle"), Signal{}, func(p *Pool) {
			p.Cooldown, p.Stabilization = cooldown, window
		})
		var past []Mark
		var lowered time.Time
		before := 0
		pass := func(noisy bool) {
			if noisy {
				s.Signals.Pools["p"] = drawSignal(t)
			}
			r := s.plan()["p"]
			past = append(past, Mark{s.Now, r.Target})
			most := 0
			for _, m := range past {
				if m.At.Equal(s.Now) || s.Now.Sub(m.At) < window {
					most = max(most, m.Count)
				}
			}
			require.GreaterOrEqual(t, r.Desired, most, "up at once, and down only with the window")
			require.LessOrEqual(t, r.Desired, max(before, r.Target), "up only to the target")
			if r.Desired < before {
				require.False(t, !lowered.IsZero() && s.Now.Sub(lowered) < cooldown, "SCALE-3")
				lowered = s.Now
			}
			before = r.Desired
		}
		for range rapid.IntRange(1, 60).Draw(t, "passes") {
			pass(true)
			s.after(time.Duration(rapid.IntRange(1, 15).Draw(t, "gap")) * time.Second)
		}
		changes, end := 0, s.Now.Add(window+cooldown+20*time.Second)
		for s.Now.Before(end) {
			was := before
			pass(false)
			if was != before {
				changes++
			}
			s.after(2 * time.Second)
		}
		require.Equal(t, s.plan()["p"].Target, before, "at rest where it should be")
		for range 50 {
			pass(false)
			s.after(2 * time.Second)
			require.Equal(t, s.plan()["p"].Target, before, "and stays there")
		}
	})
}

// Several pools that contend, over time: whatever the past, constant demand leads to the recommended numbers, and they
// stay. There are never more runners beyond jobs than have room, except those that are not released yet.
func TestPlan_SCALE4_SimulatedPoolsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, someSizes...)
		next := func() {
			for i, r := range Plan(in) {
				in.Pools[i].State = r.State // both are in the order of names
			}
			in.Now = in.Now.Add(5 * time.Second)
			in.Signals.Previous, in.Signals.At = in.Signals.At, in.Now
		}
		for range 80 { // windows and cooldowns are a minute at most, and a step of one may let another's follow
			next()
		}
		for range 10 {
			for i, r := range Plan(in) {
				p := in.Pools[i]
				require.Equal(t, p.State.Desired, map[bool]int{true: p.Replicas, false: r.Desired}[!p.Autoscaled && !p.Terminating], "%s moves", r.Name)
				if decided(p, r) && len(p.Nodes) > 0 {
					require.Equal(t, r.Recommended, r.Desired, "%s: %s", r.Name, r.Why())
				}
			}
			next()
		}
	})
}

// A pass that asks to be followed at once, because a step down is due, is followed by one that takes it.
func TestPlan_SCALE3_NoStepIsDueForEver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minutes := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 3).Draw(t, name)) * time.Minute
		}
		pools, signals := make([]Pool, 2), map[string]Signal{}
		for i, name := range []string{"a", "b"} {
			pools[i] = Pool{
				Name: name, Autoscaled: true, MinIdle: rapid.IntRange(0, 5).Draw(t, "warm"), Max: rapid.IntRange(1, 20).Draw(t, "max"),
				Cooldown: minutes("cooldown"), Stabilization: minutes("stabilization"), Runner: Room{MilliCPU: 1000, Pods: 1},
			}
			if rapid.Bool().Draw(t, "has a node") {
				pools[i].Nodes = []string{"n"}
			}
		}
		now, due := time.Unix(1e9, 0), 0
		for range 40 {
			for _, p := range pools {
				if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
					signals[p.Name], due = drawSignal(t), 0
				} else if _, known := signals[p.Name]; !known {
					signals[p.Name] = Signal{}
				}
			}
			again := false
			for i, r := range Plan(Input{Now: now, Pools: pools, Nodes: map[string]Room{"n": {8000, 1 << 40, 10, 0, 0}}, Signals: Signals{At: now, Pools: signals}}) {
				pools[i].State = r.State
				overdue := !r.Next.IsZero() && !r.Next.After(now)
				again = again || overdue
				require.False(t, overdue && due > len(pools), "%+v", r)
			}
			if due++; !again {
				due = 0
			}
			now = now.Add(2 * time.Second)
		}
	})
}

func BenchmarkPlan(b *testing.B) {
	s := situated()
	for i := range 200 {
		s.Nodes[fmt.Sprintf("n%d", i)] = unit(40)
	}
	for i := range 100 {
		s.pool(fmt.Sprintf("p%d", i), 50, 100, Signal{Occupied: 40, P95: 90}, size(someSizes[i%4]), func(p *Pool) { p.Max = 1000 })
	}
	for b.Loop() {
		Plan(s.Input)
	}
}
