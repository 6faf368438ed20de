package lifecycle

import "time"

// HoldUntil says until when ephemeral runners that have ended are not made again (RUN-4): the message that would lower the
// number may be under way. scaledAt is when the number was last found to be needed, completeAt when all wanted runners were
// last there or had been asked for. Zero: there is no hold, because the runners are static, because nobody chooses the number by
// what jobs need, or because there is a need that has not been met yet.
func HoldUntil(ephemeral bool, scaledAt, completeAt time.Time, hold time.Duration) time.Time {
	if !ephemeral || scaledAt.IsZero() || completeAt.IsZero() || completeAt.Before(scaledAt) {
		return time.Time{}
	}
	return completeAt.Add(hold)
}

// CompleteAt says when all wanted runners were last there, or had been asked for, for HoldUntil to count from. It stays what it
// was while a need that has been met is only kept up, so that a hold ends so long after the last scale-up, and not after the last
// look. made says that runners were created now, complete that none is missing. A need that clocks elsewhere place in the future
// is none that could have been met: it would be met anew at every look until then.
func CompleteAt(before, scaledAt time.Time, made, complete bool, now time.Time) time.Time {
	if complete && (made || before.IsZero() || before.Before(scaledAt) && !scaledAt.After(now)) {
		return now
	}
	return before
}
