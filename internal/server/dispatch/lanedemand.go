package dispatch

import (
	"cmp"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// LaneRef names one account's queue for one label set.
type LaneRef struct {
	LabelKey  string
	AccountID int64
}

// Assessment is what the fleet is asked for: by pool, and by lane. Both come from one reading, so their numbers agree.
type Assessment struct {
	Pools []runnerapi.PoolSignals
	Lanes map[LaneRef]LaneDemand // those that a pool serves, with at least one queued job
}

// LaneDemand says how many jobs of a lane may start, what blocks the others, and which jobs those are. A job is queued or blocked by this definition
// alone, in every list and every number.
type LaneDemand struct {
	Platform fleet.Platform
	Queued   int64
	Blocked  map[runnerapi.BlockedReason]int64
	// Whole blocks all of its jobs; empty: it has jobs that may start.
	Whole runnerapi.BlockedReason
	// Last is the last job that may start; Behind blocks those after it. ID 0: there are none.
	Last   JobAge
	Behind runnerapi.BlockedReason
	// Crowded are jobs up to Last whose repository is at its limit.
	Crowded map[int64]bool
}

// BlockedBy says what blocks one of its queued jobs; empty: the job may start.
func (l LaneDemand) BlockedBy(job JobAge) runnerapi.BlockedReason {
	switch {
	case l.Crowded[job.ID]:
		return runnerapi.BlockedRepository
	case l.Whole != "":
		return l.Whole
	case l.Last.ID != 0 && compareAges(job, l.Last) > 0:
		return l.Behind
	}
	return ""
}

// compareAges is the order in which jobs of one lane are handed out.
func compareAges(a, b JobAge) int {
	return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID))
}

// block counts blocked jobs of the lane, and of its pool.
func (w *wish) block(reason runnerapi.BlockedReason, jobs int64) {
	w.into.block(reason, jobs)
	if jobs == 0 {
		return
	}
	if w.demand.Blocked == nil {
		w.demand.Blocked = map[runnerapi.BlockedReason]int64{}
	}
	w.demand.Blocked[reason] += jobs
}

// blockAll blocks all jobs of the lane.
func (w *wish) blockAll(reason runnerapi.BlockedReason) {
	w.demand.Whole = reason
	w.block(reason, w.lane.Jobs+w.lane.Blocked)
}

// queue counts a job that may start, the n-th oldest of the lane.
func (w *wish) queue(n int64) {
	w.into.queue(w.lane.age(n))
	w.demand.Queued++
	switch {
	case n < int64(len(w.lane.Oldest)):
		w.demand.Last = w.lane.Oldest[n]
	default: // only the first was read, and the last that may start
		w.demand.Last = w.lane.Last
	}
}

// crowd counts a job whose repository is at its limit.
func (w *wish) crowd(job JobAge) {
	if w.demand.Crowded == nil {
		w.demand.Crowded = map[int64]bool{}
	}
	w.demand.Crowded[job.ID] = true
}

// bound says what blocks the jobs behind the last one that may start, of which there are so many.
func (w *wish) bound(behind int64) {
	reason := runnerapi.BlockedLimit
	if w.demand.Blocked[runnerapi.BlockedBackoff] > 0 {
		reason = runnerapi.BlockedBackoff
	}
	switch {
	case behind <= 0:
		w.demand.Last = JobAge{}
	case w.demand.Queued == 0:
		w.demand.Whole = reason
	default:
		w.demand.Behind = reason
	}
}
