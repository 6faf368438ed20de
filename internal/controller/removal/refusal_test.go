package removal

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// POOL-10: a deletion that fails counts from its first failure, with the last reason, until one is accepted or Bullpen itself keeps the runner.
func TestRefusal_POOL10_CountsFromTheFirstFailure(t *testing.T) {
	at := func(minutes int) time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute)
	}
	require.Zero(t, Refusal{}.Due())
	r := Refusal{}.After(errors.New("timeout"), at(0)).After(errors.New("denied\nby a policy"), at(5))
	require.Equal(t, Refusal{Why: "denied", Since: at(0)}, r)
	require.Equal(t, at(0).Add(RefusedAfter), r.Due())
	require.Equal(t, r, r.After(apierrors.NewConflict(corev1.Resource("pods"), "x", nil), at(6)))
	for _, over := range []error{nil, lifecycle.ErrNotNow, lifecycle.ErrVetoed, lifecycle.ErrNoGrant} {
		require.Equal(t, Refusal{}, r.After(over, at(6)))
	}
}
