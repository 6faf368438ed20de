package selfregistering

import "time"

// push adds a number to the marks of the last so much time. A mark that a later one makes superfluous goes: with over >= 0
// those that are not larger, so that the first is the largest; with over < 0 those that are not smaller. So there are never
// more marks than different numbers.
func push(marks []Mark, span time.Duration, over int, now time.Time, count int) []Mark {
	kept := make([]Mark, 0, len(marks)+1)
	for _, mark := range marks {
		if mark.At.After(now) {
			mark.At = now // the clock was set back: nothing may count for longer than its time
		}
		outdone := mark.Count <= count
		if over < 0 {
			outdone = mark.Count >= count
		}
		if now.Sub(mark.At) < span && !outdone {
			kept = append(kept, mark)
		}
	}
	return append(kept, Mark{now, count})
}

// gap reports whether the last decision is so long ago that what was needed in between is unknown.
func (s State) gap(now time.Time) bool { return s.Seen.IsZero() || now.Sub(s.Seen) > LongestGap }
