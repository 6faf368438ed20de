package lifecycle

import "time"

// Pace is how often the removal of one runner is asked for.
type Pace struct {
	// Ephemeral runners that are called busy take no other job: they are not asked about again before they show something else.
	Ephemeral bool
	// Busy is how long another runner that is called busy is left alone.
	Busy time.Duration
	// Pending is how long a question may be under way before it is put again.
	Pending time.Duration
	// First and Slowest bound how long after an unknown answer it is asked again; the time doubles with each in a row.
	First, Slowest time.Duration
}

// ServerPace is for the server's fence, where a question costs a row of the ledger.
func ServerPace() Pace {
	return Pace{Busy: 30 * time.Second, Pending: time.Minute, First: time.Second, Slowest: time.Minute}
}

// GitHubPace is for GitHub's fence, "remove this runner", where each question costs one of the credentials' calls. It asks about a busy
// static runner once a minute.
func GitHubPace(ephemeral bool) Pace {
	return Pace{Ephemeral: ephemeral, Busy: time.Minute, Pending: 2 * time.Minute, First: 5 * time.Second, Slowest: 5 * time.Minute}
}

// AskedAgain says what follows from an answer that was no grant. busyUntil is until when the runner counts as busy,
// whatever it shows; forever, if that is until it shows something else. askAt is when it may be asked about again. unknowns
// is how many unknown answers there have been in a row, this one included. A retry time in the answer is always respected.
func (p Pace) AskedAgain(answer Answer, unknowns int, now time.Time) (busyUntil time.Time, forever bool, askAt time.Time) {
	switch {
	case answer.Verdict == Busy && p.Ephemeral:
		return time.Time{}, true, time.Time{}
	case answer.Verdict == Busy:
		busyUntil = later(now.Add(p.Busy), answer.NotBefore)
		return busyUntil, false, busyUntil
	default:
		return time.Time{}, false, later(now.Add(doubled(p.First, p.Slowest, unknowns)), answer.NotBefore)
	}
}

// Backoff is the delay before the next creation or deletion after a number of consecutive failures: it doubles from one second to one
// minute.
func Backoff(failures int) time.Duration { return doubled(time.Second, time.Minute, failures) }

func doubled(first, most time.Duration, times int) time.Duration {
	wait := first
	for range min(max(times-1, 0), 16) {
		wait = min(2*wait, most)
	}
	return wait
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
