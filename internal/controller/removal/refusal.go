package removal

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// RefusedAfter is how long a deletion may fail before it counts as stuck (POOL-10): most failures end with a retry.
const RefusedAfter = time.Minute

// Refusal is why a deletion fails, as when an admission webhook denies it, and since when. The zero value is a deletion that does not fail.
type Refusal struct {
	Why   string
	Since time.Time
}

// After returns the refusal after one more attempt that returned err. A conflict proves neither that the deletion is accepted nor that it is
// refused, and a deletion that Bullpen's own rules stop is not refused.
func (r Refusal) After(err error, now time.Time) Refusal {
	switch {
	case apierrors.IsConflict(err):
		return r
	case err == nil, errors.Is(err, lifecycle.ErrNotNow), errors.Is(err, lifecycle.ErrVetoed), errors.Is(err, lifecycle.ErrNoGrant):
		return Refusal{}
	case r.Why == "":
		r.Since = now
	}
	r.Why = podsigns.OneLine(err.Error(), 300)
	return r
}

// Due is when the deletion counts as stuck; zero while it does not fail.
func (r Refusal) Due() time.Time {
	if r.Why == "" {
		return time.Time{}
	}
	return r.Since.Add(RefusedAfter)
}

// Stuck is a pod that should be gone and is not (POOL-10).
type Stuck struct{ Name, UID, Node, Finalizers, Refusal string }

// String names what keeps the pod: the reason that its deletion fails, the owner of a finalizer, or else the node.
func (p Stuck) String() string {
	switch {
	case p.Refusal != "":
		return fmt.Sprintf("%s (its deletion fails: %s)", p.Name, p.Refusal)
	case p.Finalizers != "" && p.Node != "":
		return fmt.Sprintf("%s on node %s (held by %s)", p.Name, p.Node, p.Finalizers)
	case p.Finalizers != "":
		return fmt.Sprintf("%s (held by %s)", p.Name, p.Finalizers)
	case p.Node != "":
		return fmt.Sprintf("%s (node %s has not confirmed that it exited)", p.Name, p.Node)
	default:
		return p.Name
	}
}
