package chartjobs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A hook starts as soon as its role exists, and the API server's authorizer may not have received the role yet.
func TestGranted_NET8_ARightThatIsNotKnownYetIsTriedAgain(t *testing.T) {
	forbidden := apierrors.NewForbidden(definitions.GroupResource(), "runnerpools.bullpen.dev", errors.New("no role"))
	calls := 0
	require.NoError(t, granted(await.Context(t), await.Limit, time.Millisecond, func() error {
		if calls++; calls < 5 {
			return forbidden
		}
		return nil
	}))
	require.Equal(t, 5, calls)

	refused := func() error { return forbidden }
	require.ErrorIs(t, granted(await.Context(t), time.Millisecond, time.Millisecond, refused), forbidden, "it lacks the right")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, granted(ctx, await.Limit, await.Limit, refused), forbidden, "it is asked to end")
	other := errors.New("another")
	require.ErrorIs(t, granted(await.Context(t), await.Limit, await.Limit, func() error { return other }), other, "at once")
}
