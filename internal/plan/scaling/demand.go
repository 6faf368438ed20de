package scaling

import (
	"fmt"
	"time"
)

// wishes are what a pool asks for, a tier after the other; each is on top of those before. Their sum is the target.
type wishes struct{ load, blocked, floor, headRoom int }

func (w wishes) total() int { return w.load + w.blocked + w.floor + w.headRoom }

// wishesOf reads a pool's signal. The target is max(load, p95) + MinIdle, at most Max. Jobs that are blocked ask for
// exactly one runner, taken from the idle ones where there are some: enough to be there when the jobs are released, too
// little to occupy room that other jobs need (SCALE-2).
//
// A pool without warm runners has no headroom either. It would otherwise stay up for an hour after its last job,
// because p95 covers an hour; MinIdle 0 asks for zero.
func wishesOf(pool *Pool, s Signal) wishes {
	capped := func(n int) int { return max(0, min(n, pool.Max)) } // clamped before it is added, so that no sum can overflow
	var w wishes
	left := capped(pool.Max)
	take := func(n int) int {
		n = max(0, min(n, left)) // SCALE-3
		left -= n
		return n
	}
	w.load = take(capped(occupied(s)) + capped(s.Queued))
	if s.Blocked > 0 {
		w.blocked = take(1) // SCALE-2
	}
	w.floor = take(pool.MinIdle - w.blocked)
	if pool.MinIdle > 0 {
		w.headRoom = take(capped(s.P95) - w.load)
	}
	return w
}

// occupied counts the busy runners. A claim counts from the moment that it is made, a session until its pod's end is
// known, so neither number alone has them all.
func occupied(s Signal) int { return max(s.Occupied, s.Claimed) }

// blindness says why nothing can be decided for a pool; empty when it can (POOL-8).
func blindness(in *Input, pool *Pool) string {
	if problem := in.Signals.Unusable(in.Now); problem != "" {
		return problem
	}
	s, known := in.Signals.Pools[pool.Name]
	switch {
	case in.NodesProblem != "":
		return in.NodesProblem
	case pool.Problem != "":
		return pool.Problem
	case pool.Max <= 0:
		return "autoscaling has no maximum: set spec.autoscaling.maxReplicas"
	case pool.Runner.MilliCPU < 0 || pool.Runner.Memory < 0 || pool.Runner.Pods < 0 || pool.Runner.Disk < 0:
		return "the size of its runners is negative: correct spec.resources"
	case !known:
		return "the server's response does not include this pool"
	case min(s.Occupied, s.Claimed, s.Queued, s.Blocked, s.P95) < 0:
		return "the server returned a negative number for this pool"
	}
	return ""
}

// Unusable says why the signals say nothing of now; empty when they do (POOL-8).
func (s *Signals) Unusable(now time.Time) string {
	switch {
	case s.Problem != "":
		return s.Problem
	case s.At.IsZero():
		return "the server's data has no timestamp"
	case now.Sub(s.At) > StaleAfter:
		return fmt.Sprintf("the server's data is more than %s old: check for a caching proxy and for clock skew", StaleAfter)
	case s.At.Before(s.Previous):
		return "the server's data is older than the previous one"
	}
	return ""
}
