package fleet

import "errors"

// RemovalProof is what GitHub's answer to "remove this runner" proves.
type RemovalProof int

// Unproven is the zero value on purpose: what was not proven is not known (EXCL-3).
const (
	Unproven       RemovalProof = iota
	ProvenGone                  // the runner is not registered
	ProvenBusy                  // it has a job
	NeedsScopeRead              // a 403 or 404: it means something only beside a read of the same scope that began after it
)

// ScopeRead is a read of the scope that the runner is registered in. It begins after the answer that it stands beside: a permission that was lost between the
// two is seen.
type ScopeRead struct {
	Err    error
	Listed bool // the runner itself, by its id
	Busy   bool
}

// ProveRemoval is the one rule for the pods of RunnerPools and for self-registering runners (EXCL-6). A 403 says nothing of the runner, and a list
// that shows it idle is older than the job that it may be given in the next moment: together they prove nothing.
func ProveRemoval(answer error, read *ScopeRead) RemovalProof {
	forbidden := errors.Is(answer, ErrForbidden)
	switch {
	case answer == nil:
		return ProvenGone
	case errors.Is(answer, ErrRunnerBusy):
		return ProvenBusy
	case !forbidden && !errors.Is(answer, ErrNotFound):
		return Unproven
	case read == nil:
		return NeedsScopeRead
	case read.Err != nil:
		return Unproven
	case !read.Listed:
		return ProvenGone
	case forbidden && read.Busy:
		return ProvenBusy
	default:
		return Unproven
	}
}
