package lifecycle

import "time"

// Leave is the state of one runner's removal as its owner's controller knows it: the question, the fence's answer, and whether the deletion was
// accepted. The runner's own signs of work are not part of it. The zero value is a runner without a removal. Leave reads no clock and is
// not safe for concurrent use.
type Leave struct {
	// Removal is none, asked or granted.
	Removal Removal
	Why     Reason
	// Since is when it was first asked for, and later when the deletion was accepted.
	Since time.Time
	// AskAt is when the fence may be asked again.
	AskAt time.Time
	// Unknowns is how often in a row the fence could not say.
	Unknowns int
	// Proof came with the grant: why the runner's work is known to be over.
	Proof string
	// Lost: it was asked about as a lost one.
	Lost bool
	// Deleted: the deletion was accepted.
	Deleted bool
	// BusyUntil is until when the runner counts as busy by the fence's answer; BusyAs is what it showed then, if the answer
	// counts until that changes.
	BusyUntil time.Time
	BusyAs    Stage
}

// Ask records that the fence is about to be asked.
func (l *Leave) Ask(a Action, pace Pace, now time.Time) {
	if l.Removal == RemovalNone {
		l.Since = now
	}
	l.Removal, l.Why, l.AskAt = RemovalAsked, a.Reason, now.Add(pace.Pending)
	l.Lost = a.Runner.Stage == StageLost
}

// Withdraw takes a question back, and reports whether it could: what the fence has granted stays granted (RUN-6).
func (l *Leave) Withdraw() bool {
	if l.Removal != RemovalAsked {
		return false
	}
	l.Removal, l.Why = RemovalNone, ""
	return true
}

// Answered records the fence's answer to a question that was asked for that reason, about a runner that shows that stage
// (zero: none). A grant stays even if the question was withdrawn in between, because the runner gets no more jobs. Unknown
// deletes nothing (EXCL-3): the question is repeated at growing intervals, unless it was withdrawn.
func (l *Leave) Answered(answer Answer, why Reason, shown Stage, pace Pace, now time.Time) {
	switch answer.Verdict {
	case Granted:
		if l.Removal == RemovalNone {
			l.Why, l.Since = why, now
		}
		l.Removal, l.Proof, l.Unknowns = RemovalGranted, answer.Proof, 0
	case Busy:
		l.Removal, l.Why, l.Proof, l.Unknowns, l.BusyAs = RemovalNone, "", "", 0, 0
		var forever bool
		if l.BusyUntil, forever, l.AskAt = pace.AskedAgain(answer, 0, now); forever {
			l.BusyAs = shown
		}
		if l.Lost { // its own signs prove nothing: the fence says when it is over
			pace.Ephemeral = false
			_, _, l.AskAt = pace.AskedAgain(answer, 0, now)
		}
	default:
		if l.Removal == RemovalNone {
			return
		}
		l.Unknowns++
		l.Removal = RemovalAsked
		_, _, l.AskAt = pace.AskedAgain(answer, l.Unknowns, now)
	}
}

// Vetoed records that the runner was not deleted although it was granted: the proof is void, and the fence is asked for another one in
// time.
func (l *Leave) Vetoed(pace Pace, now time.Time) { l.Proof, l.AskAt = "", now.Add(pace.Pending) }

// Replaced records that another pod stands for the runner: no answer about the former one holds for it. The removal itself goes on.
func (l *Leave) Replaced() { *l = Leave{Since: l.Since, Lost: l.Lost, Deleted: l.Deleted} }

// Showed records what the runner shows now. An answer that it is busy, which counts until that changes, is void once it shows something
// else. That it leaves is no change.
func (l *Leave) Showed(stage Stage) {
	if stage != l.BusyAs && stage != StageTerminating {
		l.BusyAs = 0
	}
}

// Accepted records that the API server has accepted the deletion.
func (l *Leave) Accepted(now time.Time) { l.Deleted, l.Since = true, now }

// SaidBusy reports whether the fence's word that the runner is busy still holds, although it does not show it (EXCL-4).
func (l *Leave) SaidBusy(shown Stage, now time.Time) bool {
	return l.BusyAs != 0 && l.BusyAs == shown || now.Before(l.BusyUntil)
}

// Overlay has the engine see a runner leave that shows no work, as far as its removal has come.
func (l *Leave) Overlay(r *Runner) {
	if l.Removal == RemovalNone {
		return
	}
	r.Shown, r.ShownSince = r.Stage, r.Since
	r.Stage, r.Removal, r.Since, r.Why, r.AskAt = StageTerminating, l.Removal, l.Since, l.Why, l.AskAt
}
