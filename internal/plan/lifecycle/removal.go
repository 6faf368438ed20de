package lifecycle

import (
	"context"
	"errors"
)

// Errors that keep a runner from being deleted.
var (
	// ErrNoGrant: the fence has granted nothing for this runner.
	ErrNoGrant = errors.New("the fence has granted nothing for this runner")
	// ErrVetoed: the runner shows a sign of work.
	ErrVetoed = errors.New("the runner shows a sign of work")
	// ErrNotNow: the fence was asked again right before, and no longer grants the removal.
	ErrNotNow = errors.New("the fence no longer grants the removal")
)

// Signs are what a runner itself shows of its work. Each of them vetoes a removal, whatever the fence says (EXCL-4).
type Signs struct {
	// Owner is the account in its label; empty when it has none.
	Owner string
	// PollerEnded: what trades its token for a job has ended, however it ended.
	PollerEnded bool
	// NotReady: a job has started in its runner, or it cannot tell. It shows for certain when none has.
	NotReady bool
}

// Work names the first sign of work in a sentence; empty for none.
func (s Signs) Work() string {
	switch {
	case s.Owner != "":
		return "it has a job for " + s.Owner
	case s.PollerEnded:
		return "its poller exited"
	case s.NotReady:
		return "a job has started in it"
	default:
		return ""
	}
}

// Observed is one runner as it was observed, however long ago.
type Observed struct {
	UID string
	// Ended: it is terminal, and nothing can run in it.
	Ended bool
	Signs Signs
}

// Grant is the fence's word that one runner, by UID, may be removed. Proof is that of the Answer.
type Grant struct{ UID, Proof string }

// MayDelete returns an error unless a runner that was observed like this may be deleted. One that has not ended needs a grant for
// its UID (EXCL-2), and may show no sign of work unless the grant carries a proof that its work is over (EXCL-4).
// Nothing is deleted on this alone: see Remove.
func MayDelete(o Observed, g Grant) error {
	switch {
	case o.Ended:
		return nil
	case o.UID == "" || g.UID != o.UID:
		return ErrNoGrant // EXCL-2
	case o.Signs.Work() != "" && g.Proof == "":
		return ErrVetoed // EXCL-4
	default:
		return nil
	}
}

// Remove deletes one runner as it was observed, if it may be deleted: with the grant that it has, and with one more
// answer of the fence right before (EXCL-2). remove deletes the runner, and must ensure that it has not changed in any
// way since it was observed, so that no sign of work can have appeared unseen. The answer is the fence's, when it was
// asked.
func Remove(ctx context.Context, fence Fence, ref RunnerRef, o Observed, g Grant, remove func(context.Context) error) (Answer, error) {
	answer := Answer{Verdict: Granted}
	if o.Ended {
		return answer, remove(ctx)
	}
	if err := MayDelete(o, g); err != nil && !(ref.Lost && errors.Is(err, ErrVetoed)) {
		return answer, err // of a lost runner the fence is asked for a proof, also if there was none before
	}
	if answer = fence.Ask(ctx, []RunnerRef{ref})[0]; answer.Verdict != Granted {
		return answer, ErrNotNow // EXCL-2, EXCL-3
	}
	// A proof is as old as its answer: an earlier one lifts no veto now.
	if err := MayDelete(o, Grant{UID: ref.UID, Proof: answer.Proof}); err != nil {
		return answer, err
	}
	return answer, remove(ctx)
}
