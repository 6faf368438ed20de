package pool

import (
	"cmp"
	"context"
	"time"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// work is what a pass has to do, as the plan says and the state has recorded.
type work struct {
	create   []string // names to create
	more     bool     // the plan wants more than one pass creates
	remove   []string // names for removals to look after
	ask      bool     // there are questions for the fence
	plan     lifecycle.Plan
	stuck    []removal.Stuck // deleted pods that should be gone by now, and are not
	finished bool            // the pool is terminating and nothing of it is left
}

// plan makes a pool's plan within what its fleet may start.
func (r *Reconciler) plan(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState, wish lifecycle.Wish) (work, error) {
	name := func() string { return runnerpod.Name(pool.Name, r.options.NewSuffix()) }
	fleet, err := runnerpod.Fleet(pool)
	if err != nil {
		return work{}, err
	}
	limit := limitOf(pool)
	if wish.Terminating {
		limit = 0
	}
	book := r.tracker.starts
	if limited := book.enter(state.key, fleet, limit); !limited || wish.Terminating || wish.Paused {
		book.record(state.key, 0, false)
		return state.plan(wish, name, r.options.Burst, r.now()), nil
	}
	usable, err := r.usableNodes(ctx, pool, state)
	if err != nil {
		return work{}, err
	}
	book.gate.Lock()
	defer book.gate.Unlock()
	share, limited := book.share(state.key, state.missing(wish, r.now()), usable)
	wish.LimitStarts, wish.Starts = limited, share.allowed
	todo := state.plan(wish, name, r.options.Burst, r.now())
	refused := todo.plan.Refused > 0
	if refused {
		todo.plan.Next = earlier(todo.plan.Next, r.now().Add(lookAtStartsEvery))
	}
	book.record(state.key, todo.plan.Refused, refused)
	state.noteStarts(share, refused)
	return todo, nil
}

// missing is how many runners a plan would create if nothing held them back, at once or in place of those that it rolls: a
// roll that is given no start takes no runner (POOL-5).
func (s *poolState) missing(wish lifecycle.Wish, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	wish.HoldUntil = s.holdUntil
	wish.Others = s.others(wish)
	plan := lifecycle.MakePlan(wish, s.runners, now)
	return plan.Create + plan.Rolled
}

// noteStarts notes which term held starts back, for the condition Starved.
func (s *poolState) noteStarts(share startShare, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startsSay = ""
	if refused {
		s.startsSay = cmp.Or(string(share.term), string(termFleetCeiling)) + ": " + share.detail
	}
}

// plan makes the plan and records what is about to be done, so that the next one counts it.
func (s *poolState) plan(wish lifecycle.Wish, newName func() string, burst int, now time.Time) work {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, alarm := range s.watched {
		if m := s.members[name]; m == nil || !now.Before(alarm) {
			delete(s.watched, name)
			if m != nil {
				s.settle(m, now)
			}
		}
	}
	wish.HoldUntil = s.holdUntil
	wish.Others = s.others(wish)
	plan := lifecycle.MakePlan(wish, s.runners, now)
	w := work{plan: plan, finished: plan.Done && len(s.members) == 0}
	for _, alarm := range s.watched {
		plan.Next = earlier(plan.Next, alarm)
	}
	s.drain(wish.Terminating, &w)
	w.stuck = s.stuckPods(s.leaving.look(now)) // POOL-10
	plan.Next = earlier(plan.Next, s.leaving.next)
	for name := range s.expected {
		m := s.members[name]
		if due := m.created.Add(observeWithin); now.Before(due) {
			plan.Next = earlier(plan.Next, due)
		} else if m.uid != "" && !m.queued {
			m.queued = true
			w.remove = append(w.remove, name)
		}
		if !m.creating {
			continue
		}
		if now.Before(s.holdUntil) {
			plan.Next = earlier(plan.Next, s.holdUntil)
		} else {
			w.create = append(w.create, name) // its outcome is not known: the same name again
		}
	}
	w.plan.Next = plan.Next
	s.recordRemovals(plan, &w, now)
	w.more = plan.Create > burst
	for range min(plan.Create, burst) {
		w.create = append(w.create, s.reserve(newName, wish.TemplateHash, now))
	}
	return w
}

func (s *poolState) recordRemovals(plan lifecycle.Plan, w *work, now time.Time) {
	for _, a := range plan.Withdraw {
		if m := s.members[a.Runner.Name]; m != nil && m.leave.Withdraw() {
			s.settle(m, now)
		}
	}
	if w.ask = s.questions.put(plan.Ask); w.ask {
		for _, a := range plan.Ask {
			m := s.members[a.Runner.Name]
			m.leave.Ask(a, pace, now)
			s.settle(m, now)
		}
	}
	for _, a := range plan.Delete {
		m := s.members[a.Runner.Name]
		if m != nil && !m.queued && m.unfinished(now) {
			m.queued = true
			w.remove = append(w.remove, m.name)
		}
	}
}

// reserve adds a member with an unused name; it counts from now on.
func (s *poolState) reserve(newName func() string, hash string, now time.Time) string {
	name := newName()
	for s.members[name] != nil {
		name = newName()
	}
	m := s.member(name)
	m.creating, m.hash, m.created = true, hash, now
	s.expected[name] = true
	s.settle(m, now)
	return name
}
