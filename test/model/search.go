package model

import (
	"hash/maphash"
	"strings"
	"time"
)

// result of a walk.
type result struct {
	states, steps int
	cut           bool              // at the limit: nothing is known of the rest
	broken        map[string]string // by rule, a shortest trace
	took          time.Duration
	longest       map[string]int // by goal, if they were searched: the fewest steps to it from where it is farthest
}

// walk visits every state that can be reached, those that are nearest to the first one first.
type walk struct {
	m      *machine
	states []state
	parent []uint32
	index  []uint64 // open addressing: 1 + position in states, below half of the state's hash
	steps  int
	cut    bool
	done   bool // what was looked for is found

	firstAt map[string]uint32 // a nearest state that breaks the rule, or from which a step does
	byStep  map[string]step

	fair    []uint32 // where fair steps lead, in the order of the states they come from
	fairEnd []uint32 // for each state, the end of its part of fair
	longest map[string]int
}

var seed = maphash.MakeSeed()

func check(c config) result { return newWalk(c).all() }

func newWalk(c config) *walk {
	return &walk{m: newMachine(c), index: make([]uint64, 1<<12), firstAt: map[string]uint32{}, byStep: map[string]step{}}
}

func (w *walk) all() result {
	begin := time.Now()
	w.add(w.m.first(), 0)
	for at := 0; at < len(w.states) && !w.done; at++ {
		w.visit(uint32(at)) //nolint:gosec // the limit is far below
	}
	if !w.m.noLiveness && !w.cut && !w.done {
		w.stuck()
	}
	r := result{states: len(w.states), steps: w.steps, cut: w.cut, longest: w.longest, broken: map[string]string{}}
	for rule := range w.firstAt {
		r.broken[rule] = w.trace(rule)
	}
	r.took = time.Since(begin)
	return r
}

func (w *walk) visit(at uint32) {
	s := w.states[at]
	if rule := w.m.brokenIn(&s); rule != "" {
		w.found(rule, at)
	}
	steps := w.m.next(&s)
	for i := range steps {
		e := &steps[i]
		if e.to == s {
			continue
		}
		w.steps++
		if e.broken != "" && w.found(e.broken, at) {
			w.byStep[e.broken] = *e
		}
		n, ok := w.add(e.to, at)
		if ok && e.fair && !w.m.noLiveness {
			w.fair = append(w.fair, n)
		}
	}
	w.fairEnd = append(w.fairEnd, uint32(len(w.fair))) //nolint:gosec // the limit is far below
}

func (w *walk) found(rule string, at uint32) bool {
	if _, known := w.firstAt[rule]; known {
		return false
	}
	w.firstAt[rule] = at
	w.done = w.done || w.m.until != "" && strings.HasPrefix(rule, w.m.until)
	return true
}

// add returns the position of a state, and appends it if it is new; false at the limit.
func (w *walk) add(s state, from uint32) (uint32, bool) {
	if len(w.states)*2 >= len(w.index) {
		w.grow()
	}
	hash := maphash.Bytes(seed, s.bytes()[:])
	slot := w.slot(hash, &s)
	if n := uint32(w.index[slot]); n != 0 { //nolint:gosec // the lower half
		return n - 1, true
	}
	if len(w.states) >= w.m.limit {
		w.cut = true
		return 0, false
	}
	w.states = append(w.states, s)
	w.parent = append(w.parent, from)
	w.index[slot] = hash&^lower | uint64(len(w.states))
	return uint32(len(w.states) - 1), true //nolint:gosec // the limit is far below
}

const lower = 1<<32 - 1

// slot is where the state is, or would be.
func (w *walk) slot(hash uint64, s *state) uint64 {
	mask := uint64(len(w.index) - 1)
	at := hash & mask
	for {
		entry := w.index[at]
		if entry == 0 || entry&^lower == hash&^lower && w.states[entry&lower-1] == *s {
			return at
		}
		at = (at + 1) & mask
	}
}

func (w *walk) grow() {
	w.index = make([]uint64, len(w.index)*2)
	mask := uint64(len(w.index) - 1)
	for i := range w.states {
		hash := maphash.Bytes(seed, w.states[i].bytes()[:])
		at := hash & mask
		for w.index[at] != 0 {
			at = (at + 1) & mask
		}
		w.index[at] = hash&^lower | uint64(i+1) //nolint:gosec // not negative
	}
}
