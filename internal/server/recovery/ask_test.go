package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// RECV-5, RECV-6: an installation that says nothing is left alone for the rest of a pass; one that refuses to show some of its
// repositories is asked about the others.
func TestQuestions_RECV5_RECV6_ARefusalIsNoSilence(t *testing.T) {
	const installation = 7
	for _, c := range []struct {
		answer error
		want   error
	}{
		{fleet.ErrForbidden, nil}, {fleet.ErrNotFound, nil}, {nil, nil}, {fleet.ErrUncertain, errSilent},
		{&fleet.RateLimitedError{Resource: "core", Until: time.Now()}, errSilent},
	} {
		q := (&Recovery{opt: Options{Requests: 100}}).newQuestions()
		for range 2 * tooSilent {
			q.noteResponse(installation, c.answer)
		}
		require.ErrorIs(t, q.may(installation), c.want, "%v", c.answer)
		require.NoError(t, q.may(installation+1))
	}
}
