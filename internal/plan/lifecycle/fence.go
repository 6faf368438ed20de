package lifecycle

import (
	"context"
	"time"
)

// Fence decides whether a runner may be removed. There is one per way a runner is backed: the server's retire for
// the pods of a RunnerPool, GitHub's own "remove this runner" for runners that register themselves.
//
// A grant is necessary and never sufficient: the caller still checks for any other sign of work (EXCL-4). Asking
// is idempotent; a granted runner is granted again. Implementations are safe for concurrent use.
type Fence interface {
	// Ask answers for each runner, in the order given and always for all of them. A runner that could not be asked
	// about (an error, a timeout) is Unknown, and unknown never deletes (EXCL-3); Ask itself therefore has no error.
	Ask(ctx context.Context, runners []RunnerRef) []Answer
}

// RunnerRef names one runner. UID is the identity that the fence decides on; the names are for people.
type RunnerRef struct {
	Namespace, Name, UID, Owner string
	// Lost indicates that the runner's node is authoritatively gone, or that recovery wants it removed. Its own signs prove nothing, and
	// the fence grants only on proof that its registration is gone (POOL-7).
	Lost bool
}

// Verdict is a fence's word on one runner.
type Verdict int

// Unknown is the zero value on purpose: what was not answered is not known (EXCL-3).
const (
	Unknown Verdict = iota
	Busy
	Granted
)

// Answer is a verdict with a sentence for a person: who owns a busy runner, why nothing is known.
type Answer struct {
	Verdict Verdict
	Detail  string
	// Proof comes with Granted, and says in a sentence why the runner's work is known to be over. It lifts the veto of the pod's own signs
	// of work (EXCL-4); empty lifts none.
	Proof string
	// NotBefore comes with Unknown, and with Busy where the runner may be free again by then: before that moment asking again
	// is of no use, such as while a rate limit lasts. Zero: the asker's own pace.
	NotBefore time.Time
}
