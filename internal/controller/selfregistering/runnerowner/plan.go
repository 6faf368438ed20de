package runnerowner

import (
	"maps"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// startTimeout is how long a runner with a node may take until it is up. Its registration at GitHub has a timeout of its own, from the
// moment that it is up.
const startTimeout = 10 * time.Minute

// leaveTimeout is how long a runner whose deletion was accepted holds its place: the kubelet of an unreachable node confirms no deletion.
const leaveTimeout = 5 * time.Minute

// wishOf is what the owner wants, for the engine.
func wishOf(o *Owner) lifecycle.Wish {
	return lifecycle.Wish{
		Desired: o.Desired, TemplateHash: o.TemplateHash, MaxSurge: o.MaxSurge, MaxUnavailable: o.MaxUnavailable,
		StartTimeout: max(startTimeout, o.RegistrationTimeout), LeaveTimeout: leaveTimeout,
		// The id of an ephemeral runner is known before it starts, so GitHub can say at any time whether it may be removed; for a static
		// runner that is registering it cannot.
		KeepBooting: !o.Ephemeral, KeepPending: true,
		Paused: o.Invalid != nil && !o.terminating(), Terminating: o.terminating(),
	}
}

// work is what a pass has to do, as the plan says and the state has recorded.
type work struct {
	plan   lifecycle.Plan
	wish   lifecycle.Wish
	create int      // how many to create under new names
	again  []string // names for which a create request had no answer
	look   []string // created, and not shown by the watch in time
	ask    []lifecycle.Action
	remove []string
	tend   []string
	held   bool // creations wait for RUN-4's hold, and not because starts fail
	done   bool // the owner is terminating and nothing of it is left
	lost   []lostJob
}

// makePlan makes the plan and records what is about to be done, so that the next one counts it. room is how many members there
// may be more; negative: any number.
func (s *ownerState) makePlan(o *Owner, room int, now time.Time) work {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.watched)) {
		if m := s.members[name]; m == nil {
			delete(s.watched, name)
		} else if !now.Before(s.watched[name]) {
			s.settle(m, now)
		}
	}
	w := work{wish: wishOf(o)}
	if room >= 0 {
		w.wish.LimitStarts, w.wish.Starts = true, room
	}
	hold := s.recreationHold(o)
	w.wish.HoldUntil = later(s.holdUntil, hold)
	if lifecycle.Shrinks(w.wish, s.runners) {
		w.wish.Others = s.loads.Others(s.uid) // SCALE-5
	}
	w.plan = lifecycle.MakePlan(w.wish, s.runners, now) // RUN-1: one engine for Runners and StatefulSets
	w.held = w.plan.Delayed > 0 && now.Before(hold) && !now.Before(s.holdUntil)
	w.create = w.plan.Create
	s.recordRemovals(&w, now)
	s.recordCare(&w, now)
	w.lost, s.lostJobs = s.lostJobs, nil
	for name := range s.expected {
		m := s.members[name]
		switch due := m.created.Add(observeWithin); {
		case m.creating && now.Before(s.holdUntil):
			w.plan.Next = earlier(w.plan.Next, s.holdUntil)
		case m.creating:
			w.again = append(w.again, name)
		case now.Before(due):
			w.plan.Next = earlier(w.plan.Next, due)
		default:
			w.look = append(w.look, name)
		}
	}
	for _, alarm := range s.watched {
		w.plan.Next = earlier(w.plan.Next, alarm)
	}
	for _, due := range s.leaving { // POOL-10
		if now.Before(due) {
			w.plan.Next = earlier(w.plan.Next, due)
		}
	}
	w.done = w.plan.Done && len(s.members) == 0
	return w
}

// recreationHold is RUN-4's. A number that has been raised since all were there is a need of its own, however coarse the clock
// that it was noted with.
func (s *ownerState) recreationHold(o *Owner) time.Time {
	if s.completeFor >= 0 && o.Desired > s.completeFor {
		return time.Time{}
	}
	return lifecycle.HoldUntil(o.Ephemeral, o.ScaledAt, s.completeAt, o.RecreationHold)
}

// completed notes, after what a pass has created, whether all that are wanted are there.
func (s *ownerState) completed(o *Owner, made int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One that is leaving is not there for the need: it would end what its removal may have been evidence of.
	present := s.runners.Count(lifecycle.StageStarting) + s.runners.Count(lifecycle.StageIdle) + s.runners.Count(lifecycle.StageBusy)
	complete := present >= o.Desired
	raised := s.completeFor >= 0 && o.Desired > s.completeFor
	s.completeAt = lifecycle.CompleteAt(s.completeAt, o.ScaledAt, made > 0 || raised, complete, now)
	if complete {
		s.completeFor = o.Desired
	}
	s.completeFor = min(s.completeFor, o.Desired)
}

// fruitless are the reasons to remove a runner that has done no job: the need for it stands (RUN-4).
var fruitless = map[lifecycle.Reason]bool{
	lifecycle.ReasonStartTimeout: true, lifecycle.ReasonRegistrationTimeout: true, lifecycle.ReasonDefective: true,
	lifecycle.ReasonLost: true, lifecycle.ReasonUnschedulable: true, lifecycle.ReasonNodeCordoned: true,
}

func (s *ownerState) recordRemovals(w *work, now time.Time) {
	for _, a := range w.plan.Withdraw { // RUN-6: it was not granted, so it may take work as before
		if m := s.members[a.Runner.Name]; m != nil && m.leave.Withdraw() {
			s.settle(m, now)
		}
	}
	for _, a := range w.plan.Ask {
		m := s.members[a.Runner.Name]
		if m == nil {
			continue
		}
		m.leave.Ask(a, s.pace, now)
		w.ask = append(w.ask, a)
		s.settle(m, now)
	}
	for _, a := range w.plan.Delete {
		s.remove(a.Runner.Name, w, now)
	}
}

// remove has a member removed, unless that was accepted, or is not due again.
func (s *ownerState) remove(name string, w *work, now time.Time) {
	m := s.members[name]
	switch {
	case m == nil || m.leave.Deleted && (!m.exists || !m.Deleting.IsZero()) && (m.pod == nil || !m.pod.Deleting.IsZero()):
	case now.Before(m.retryAt):
		w.plan.Next = earlier(w.plan.Next, m.retryAt)
	default:
		w.remove = append(w.remove, name)
	}
}

// recordCare finds the members that the Backing should look after, and those that must not outlive their pod.
func (s *ownerState) recordCare(w *work, now time.Time) {
	for name := range s.busyWith {
		m := s.members[name]
		if m.deletable() {
			s.remove(name, w, now)
		}
		if !m.tendable() {
			continue
		}
		if m.tended == m.tendKey() && now.Before(m.tendAt) {
			w.plan.Next = earlier(w.plan.Next, m.tendAt)
			continue
		}
		w.tend = append(w.tend, name)
	}
	slices.Sort(w.tend)
	w.remove = slices.Compact(slices.Sorted(slices.Values(w.remove)))
}

// reserve makes members of these names; they count from now on.
func (s *ownerState) reserve(names []string, hash string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		m := s.member(name)
		m.creating, m.hash, m.created = true, hash, now
		s.expected[name] = true
		s.settle(m, now)
	}
}

// taken says which names may not be given: those of members, or of what is left of them, and those that something else has.
func (s *ownerState) taken(now time.Time) func(string) bool {
	return func(name string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.members[name] != nil || now.Before(s.avoided[name])
	}
}

// answered records what the fence said of one runner that it was asked about for that reason.
func (s *ownerState) answered(name, id string, answer lifecycle.Answer, why lifecycle.Reason, now time.Time) {
	s.change(name, id, now, func(m *member) {
		var shown lifecycle.Stage
		if m.pod != nil {
			shown = m.pod.Runner(s.places(m.pod.Node), s.timeout, now).Stage
		}
		m.leave.Answered(answer, why, shown, s.pace, now)
		switch {
		case answer.Verdict == lifecycle.Granted && fruitless[m.leave.Why]:
			s.evidence()
		case answer.Verdict == lifecycle.Unknown && m.leave.Removal != lifecycle.RemovalNone: // EXCL-3
			s.unsure[m.name] = answer.Detail
		}
	})
}
