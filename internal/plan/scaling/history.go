package scaling

import "time"

// remember adds a pass's recommendation to a pool's history, and removes entries that no longer count.
//
// Only observed values are sustained: after a restart, and after a gap without data, the window begins with the number in force.
func remember(state State, window time.Duration, recommended int, now time.Time) State {
	marks := make([]Mark, 0, len(state.Window)+2)
	if state.Seen.IsZero() || now.Sub(state.Seen) > StaleAfter {
		if state.Decided {
			marks = append(marks, Mark{now, state.Desired}) // POOL-8: the window starts with what was persisted
		}
	} else {
		for _, mark := range state.Window {
			if mark.At.After(now) {
				mark.At = now // the clock was set back: nothing may count for longer than the window
			}
			if now.Sub(mark.At) < window {
				marks = append(marks, mark)
			}
		}
	}
	for len(marks) > 0 && marks[len(marks)-1].Count <= recommended {
		marks = marks[:len(marks)-1]
	}
	if state.LastScaleDown.After(now) {
		state.LastScaleDown = now // likewise
	}
	state.Window, state.Seen = append(marks, Mark{now, recommended}), now
	return state
}

// hold is the number below which a pool is not lowered for want of jobs, given a history that remember has just brought up
// to date; never more than is in force.
func hold(state State, pool *Pool, now time.Time) int {
	if !state.Decided {
		return 0
	}
	lowest := state.Desired
	if !cooling(state, pool.Cooldown, now) { // SCALE-3: the cooldown
		lowest = min(lowest, state.Window[0].Count) // SCALE-3: sustained idleness; the first mark is the highest
	}
	return min(lowest, pool.Max) // SCALE-3: the ceiling
}

func cooling(state State, cooldown time.Duration, now time.Time) bool {
	return !state.LastScaleDown.IsZero() && now.Sub(state.LastScaleDown) < cooldown
}

// nextStep is when a pool that has more than is recommended may be lowered, as far as is known now.
func nextStep(state State, pool *Pool, recommended int, now time.Time) time.Time {
	if state.Desired <= recommended {
		return time.Time{}
	}
	next := now
	if cooling(state, pool.Cooldown, now) {
		next = state.LastScaleDown.Add(pool.Cooldown)
	}
	if first := state.Window[0]; first.Count >= state.Desired {
		if end := first.At.Add(pool.Stabilization); end.After(next) {
			next = end
		}
	}
	return next
}
