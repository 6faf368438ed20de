package runnerdeployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// serving is a set whose runners are all idle, and whose status has observed its replicas.
func serving(name string, n int, change ...func(*Set)) Set {
	s := Set{Name: name, Hash: name, Created: t0, Replicas: n, Observed: n, Serving: n, Current: true}
	for _, c := range change {
		c(&s)
	}
	return s
}

func TestPlanRollout_RUN3(t *testing.T) {
	full := Wish{Hash: "new", Desired: 3, MaxSurge: 3}
	none := map[string]int{}
	for _, c := range []struct {
		name string
		wish Wish
		sets []Set
		want Rollout
	}{
		{"the first set", full, nil, Rollout{Create: true, New: 3, Replicas: none}},
		{"nothing to do", full, []Set{serving("new", 3)}, Rollout{Replicas: none}},
		{"K 3.1 a new template: a new set at full size, at once; K 3.2 the old one is untouched", full, []Set{serving("old", 3)},
			Rollout{Create: true, New: 3, Replicas: none}},
		{"K 3.2 until the new one serves all", full, []Set{serving("old", 3), serving("new", 3, func(s *Set) { s.Serving = 2 })}, Rollout{Replicas: none}},
		{"adc889ce then the old one is asked for nothing", full, []Set{serving("old", 3), serving("new", 3)}, Rollout{Replicas: map[string]int{"old": 0}}},
		{"c612e87d and is not deleted while a runner of it is busy", full, []Set{serving("old", 0, func(s *Set) { s.Observed, s.Busy = 1, 1 }), serving("new", 3)},
			Rollout{Replicas: none}},
		{"c612e87d nor before it has observed it", full, []Set{serving("old", 0, func(s *Set) { s.Current = false }), serving("new", 3)}, Rollout{Replicas: none}},
		{"adc889ce observed at zero it is deleted", full, []Set{serving("old", 0), serving("new", 3)}, Rollout{Replicas: none, Delete: []string{"old"}}},
		{"F 3.7 a template that comes back finds its set", full, []Set{serving("new", 0, func(s *Set) { s.Observed = 1 }), serving("old", 3)},
			Rollout{Replicas: map[string]int{"new": 3}}},
		{"K 3.5 another number is asked of the same set", Wish{Hash: "new", Desired: 5, MaxSurge: 5}, []Set{serving("new", 3)},
			Rollout{Replicas: map[string]int{"new": 5}}},
		{"F 3.8 a surge of one", Wish{Hash: "new", Desired: 3, MaxSurge: 1}, []Set{serving("old", 3)}, Rollout{Create: true, New: 1, Replicas: none}},
		{"F 3.8 and one old goes for one that serves", Wish{Hash: "new", Desired: 3, MaxSurge: 1}, []Set{serving("old", 3), serving("new", 1)},
			Rollout{Replicas: map[string]int{"old": 2}}},
		{"F 3.8 without surge one is given up first", Wish{Hash: "new", Desired: 3, MaxUnavailable: 1}, []Set{serving("old", 3), serving("new", 0)},
			Rollout{Replicas: map[string]int{"old": 2}}},
		{"a roll without any limit moves one all the same", Wish{Hash: "new", Desired: 3}, []Set{serving("old", 3), serving("new", 0)},
			Rollout{Replicas: map[string]int{"old": 2}}},
		{"a set that never served makes room", Wish{Hash: "new", Desired: 3, MaxSurge: 3},
			[]Set{serving("good", 3), serving("bad", 3, func(s *Set) { s.Serving = 0 }), serving("new", 0)}, Rollout{Replicas: map[string]int{"bad": 0}}},
		{"old busy runners take nobody's place", full, []Set{serving("old", 0, func(s *Set) { s.Observed, s.Busy = 9, 9 })},
			Rollout{Create: true, New: 3, Replicas: none}},
		{"somebody deletes the present set: another is made", full, []Set{serving("new", 3, func(s *Set) { s.Deleting, s.Observed, s.Busy = true, 1, 1 })},
			Rollout{Create: true, New: 3, Replicas: none}},
		{"which takes no room for what it will not have again", Wish{Hash: "new", Desired: 3, MaxUnavailable: 1},
			[]Set{serving("new", 3, func(s *Set) { s.Deleting, s.Observed, s.Busy = true, 1, 1 })}, Rollout{Create: true, New: 3, Replicas: none}},
		{"and what serves beside it stays until that does", full, []Set{serving("new", 3, func(s *Set) { s.Deleting = true }), serving("old", 3)},
			Rollout{Create: true, Replicas: none}},
		{"the deployment is deleted: every set drains", Wish{Hash: "new", Desired: 3, Terminating: true}, []Set{serving("old", 0), serving("new", 3)},
			Rollout{Replicas: map[string]int{"new": 0}, Delete: []string{"old"}}},
		{"and it ends", Wish{Hash: "new", Desired: 3, Terminating: true}, nil, Rollout{Replicas: none, Done: true}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, PlanRollout(c.wish, c.sets)) })
	}
}

// runner of the world below.
type runner struct{ busy, up bool }

// world is a deployment whose sets do by themselves what RunnerReplicaSets do.
type world struct {
	wish  Wish
	names []string
	sets  map[string]*worldSet
	step  int
}

type worldSet struct {
	hash     string
	created  time.Time
	replicas int
	observed int // the number of replicas that it has observed
	deleting bool
	runners  []runner
	status   Set // what it said last
}

func (w *world) observe() []Set {
	var sets []Set
	for _, name := range w.names {
		s := w.sets[name]
		seen := s.status
		seen.Name, seen.Hash, seen.Created, seen.Deleting, seen.Replicas = name, s.hash, s.created, s.deleting, s.replicas
		seen.Current = seen.Current && s.observed == s.replicas
		sets = append(sets, seen)
	}
	return sets
}

// report writes a set's status.
func (s *worldSet) report() {
	s.status = Set{Observed: len(s.runners), Current: true}
	for _, r := range s.runners {
		if r.up {
			s.status.Serving++
		}
		if r.busy {
			s.status.Busy++
		}
	}
}

// work brings a set one step closer to what it has been asked for. No busy runner ever goes.
func (s *worldSet) work(fence func() bool) {
	s.observed = s.replicas
	want := s.replicas
	if s.deleting {
		want = 0
	}
	for len(s.runners) < want {
		s.runners = append(s.runners, runner{})
	}
	excess := len(s.runners) - want
	s.runners = slices.DeleteFunc(s.runners, func(r runner) bool {
		if excess <= 0 || r.busy || !fence() {
			return false
		}
		excess--
		return true
	})
	s.report()
}

func (w *world) apply(t *rapid.T, plan Rollout) {
	idle := 0
	for _, s := range w.sets {
		for _, r := range s.runners {
			if !r.busy {
				idle++
			}
		}
	}
	if plan.Create {
		require.Nil(t, w.present(), "two sets of one template, of which nobody deletes any")
		name := fmt.Sprintf("set-%s-%d", w.wish.Hash, len(w.names))
		for w.sets[name] != nil {
			name += "+"
		}
		w.names = append(w.names, name)
		w.sets[name] = &worldSet{hash: w.wish.Hash, created: t0.Add(time.Duration(w.step) * time.Second), replicas: plan.New}
	}
	for name, n := range plan.Replicas {
		s := w.sets[name]
		require.True(t, n <= s.replicas || s.hash == w.wish.Hash, "RUN-3: an old set was raised")
		require.LessOrEqual(t, n, max(w.wish.Desired, s.replicas))
		s.replicas = n
	}
	for _, name := range plan.Delete {
		require.Empty(t, w.sets[name].runners, "RUN-3: %s was deleted with runners in it", name)
		delete(w.sets, name)
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
	}
}

// present is the set of the current template that is not being deleted; nil for none.
func (w *world) present() *worldSet {
	for _, s := range w.sets {
		if s.hash == w.wish.Hash && !s.deleting {
			return s
		}
	}
	return nil
}

// checkSurge: what the present set may grow to, beside what there is of others, is within the limits; busy ones of others are beyond.
func (w *world) checkSurge(t *rapid.T, before int) {
	present := w.present()
	if present == nil || present.replicas <= before {
		return
	}
	others := 0
	for _, s := range w.sets {
		if s != present {
			most := max(s.status.Observed, s.replicas)
			if s.deleting {
				most = s.status.Observed
			}
			others += max(0, most-s.status.Busy)
		}
	}
	require.LessOrEqual(t, present.replicas+others, w.wish.Desired+w.wish.MaxSurge, "more than desired and surge, beyond busy ones")
}

// From any state: when faults stop, exactly one set remains, at the desired size; and the replicas of the current set never exceed the
// limits.
func TestPlanRollout_RUN3_EndsWithExactlyOneSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{sets: map[string]*worldSet{}}
		draw := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
		change := func() {
			w.wish = Wish{Hash: fmt.Sprintf("t%d", draw("template", 3)), Desired: draw("desired", 6), MaxSurge: draw("surge", 4), MaxUnavailable: draw("unavailable", 3)}
		}
		change()
		pass := func() {
			before := 0
			if s := w.present(); s != nil {
				before = s.replicas
			}
			w.apply(t, PlanRollout(w.wish, w.observe()))
			w.checkSurge(t, before)
		}
		for w.step = range draw("steps", 60) {
			switch draw("what", 6) {
			case 0:
				change()
			case 1, 2:
				pass()
			default:
				if len(w.names) == 0 {
					continue
				}
				name := w.names[draw("set", len(w.names)-1)]
				s := w.sets[name]
				switch draw("how", 5) {
				case 0, 1:
					s.work(func() bool { return rapid.Bool().Draw(t, "grant") })
				case 2:
					s.report()
				case 3:
					s.deleting = s.deleting || draw("delete", 9) == 0
				default:
					for i := range s.runners {
						s.runners[i].up = s.runners[i].up || rapid.Bool().Draw(t, "up")
						s.runners[i].busy = s.runners[i].up && rapid.Bool().Draw(t, "busy")
					}
				}
				if s.deleting && len(s.runners) == 0 {
					delete(w.sets, name)
					w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
				}
			}
		}
		w.settle(t, pass)
		require.Len(t, w.names, 1, "exactly one set remains")
		require.NotNil(t, w.present())
		require.Len(t, w.sets[w.names[0]].runners, w.wish.Desired)
	})
}

// settle runs all actors: nothing fails, and jobs end.
func (w *world) settle(t *rapid.T, pass func()) {
	for range 120 {
		w.step++
		pass()
		for _, name := range slices.Clone(w.names) {
			s := w.sets[name]
			for i := range s.runners {
				s.runners[i] = runner{up: true}
			}
			s.work(func() bool { return true })
			for i := range s.runners {
				s.runners[i].up = true
			}
			s.report()
			if s.deleting && len(s.runners) == 0 {
				delete(w.sets, name)
				w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
			}
		}
	}
}

// Runners of an old set go only as far as others serve in their place.
func TestPlanRollout_RUN3_OldOnesGoOnlyWhereOthersServe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wish := Wish{Hash: "new", Desired: rapid.IntRange(0, 6).Draw(t, "desired"), MaxSurge: rapid.IntRange(0, 6).Draw(t, "surge"), MaxUnavailable: rapid.IntRange(0, 3).Draw(t, "unavailable")}
		old := serving("old", rapid.IntRange(0, 6).Draw(t, "old"))
		present := serving("new", rapid.IntRange(0, 6).Draw(t, "new"))
		present.Serving = rapid.IntRange(0, present.Replicas).Draw(t, "serving")
		plan := PlanRollout(wish, []Set{old, present})
		left := old.Replicas
		if n, asked := plan.Replicas["old"]; asked {
			left = n
		}
		least := min(wish.Desired-max(wish.MaxUnavailable, 0), old.Serving+present.Serving)
		if wish.MaxUnavailable == 0 && wish.MaxSurge == 0 {
			least--
		}
		require.GreaterOrEqual(t, min(left, old.Serving)+present.Serving, least)
	})
}
