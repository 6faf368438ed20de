package model

// stuck finds states from which no sequence of fair steps reaches a goal: the fair steps are reversed, and searched from the goal. "Can be
// reached" is "happens in the end" if every step that stays possible is taken some time. From the farthest state it takes as many steps as
// longest says.
func (w *walk) stuck() {
	begin, back := w.reversed()
	w.longest = map[string]int{}
	for name, reached := range w.m.goals() {
		seen := make([]bool, len(w.states))
		var todo []uint32
		for i := range w.states {
			if reached(&w.states[i]) {
				seen[i] = true
				todo = append(todo, uint32(i)) //nolint:gosec // the limit is far below
			}
		}
		for last := len(todo); len(todo) > 0; last = len(todo) {
			for _, n := range todo {
				for _, from := range back[begin[n]:begin[n+1]] {
					if !seen[from] {
						seen[from] = true
						todo = append(todo, from)
					}
				}
			}
			if todo = todo[last:]; len(todo) > 0 {
				w.longest[name]++
			}
		}
		for i := range seen {
			if !seen[i] {
				w.found("RECV-5 nothing leads any more to where "+name, uint32(i)) //nolint:gosec // the limit is far below
				break
			}
		}
	}
}

// reversed lists for each state those from which a fair step leads to it: back[begin[n]:begin[n+1]].
func (w *walk) reversed() (begin, back []uint32) {
	begin = make([]uint32, len(w.states)+1)
	for _, to := range w.fair {
		begin[to+1]++
	}
	for i := range w.states {
		begin[i+1] += begin[i]
	}
	back = make([]uint32, len(w.fair))
	next := append([]uint32(nil), begin...)
	from := 0
	for i, to := range w.fair {
		for uint32(i) >= w.fairEnd[from] { //nolint:gosec // the limit is far below
			from++
		}
		back[next[to]] = uint32(from) //nolint:gosec // the limit is far below
		next[to]++
	}
	return begin, back
}
