package lifecycle

import "time"

// Pace is how often the removal of one runner is asked for, where the fence is GitHub's "remove this runner" and each question
// costs one of the credentials' calls.
type Pace struct {
	// Ephemeral runners that are called busy take no other job: they are not asked about again before they show something else.
	Ephemeral bool
	// Static is how long a static runner that is called busy is left alone.
	Static time.Duration
	// First and Slowest bound how long after an unknown answer it is asked again; the time doubles with each in a row.
	First, Slowest time.Duration
}

// StandardPace asks about a busy static runner once a minute.
func StandardPace(ephemeral bool) Pace {
	return Pace{Ephemeral: ephemeral, Static: time.Minute, First: 2 * time.Second, Slowest: time.Minute}
}

// AskedAgain says what follows from an answer that was no grant. busyUntil is until when the runner counts as busy whatever it
// shows; for ever, if it is until it shows something else. askAt is when it may be asked about again. unknowns is how many unknown
// answers there have been in a row, this one included. What GitHub has said of when to ask again is always kept to.
func (p Pace) AskedAgain(answer Answer, unknowns int, now time.Time) (busyUntil time.Time, forever bool, askAt time.Time) {
	switch {
	case answer.Verdict == Busy && p.Ephemeral:
		return time.Time{}, true, time.Time{}
	case answer.Verdict == Busy:
		busyUntil = later(now.Add(p.Static), answer.NotBefore)
		return busyUntil, false, busyUntil
	default:
		wait := p.First
		for range min(max(unknowns-1, 0), 16) {
			wait = min(2*wait, p.Slowest)
		}
		return time.Time{}, false, later(now.Add(wait), answer.NotBefore)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
