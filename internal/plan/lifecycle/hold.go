package lifecycle

import "time"

// HoldUntil says until when ephemeral runners that have finished are not replaced (RUN-4): the message that would lower the
// number may be under way. scaledAt is when the number was last found to be needed, completeAt when all desired runners
// last existed or had been asked for. Zero means no hold: the runners are static, or no autoscaler sets the number, or a
// need has not been met yet.
func HoldUntil(ephemeral bool, scaledAt, completeAt time.Time, hold time.Duration) time.Time {
	if !ephemeral || scaledAt.IsZero() || completeAt.IsZero() || completeAt.Before(scaledAt) {
		return time.Time{}
	}
	return completeAt.Add(hold)
}

// CompleteAt says when all desired runners last existed or had been asked for; HoldUntil counts from there. It does not
// change while a need that was met persists, so a hold ends a fixed time after the last scale-up, not after the last
// reconciliation. made says that runners were created now, complete that none is missing. A need that another clock dates
// in the future counts as unmet; otherwise it would be met again at every reconciliation.
func CompleteAt(before, scaledAt time.Time, made, complete bool, now time.Time) time.Time {
	if complete && (made || before.IsZero() || before.Before(scaledAt) && !scaledAt.After(now)) {
		return now
	}
	return before
}
