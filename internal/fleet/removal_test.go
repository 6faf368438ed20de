package fleet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// EXCL-6: every answer of GitHub's to a removal, beside every read of its scope.
func TestProveRemoval_EXCL6_EveryAnswerBesideEveryRead(t *testing.T) {
	const (
		none, gone, busy, read = fleet.Unproven, fleet.ProvenGone, fleet.ProvenBusy, fleet.NeedsScopeRead
	)
	reads := []*fleet.ScopeRead{nil, {Err: errors.New("403 too")}, {}, {Listed: true}, {Listed: true, Busy: true}}
	for _, row := range []struct {
		answer error
		want   [5]fleet.RemovalProof // not read, unreadable, not listed, listed idle, listed busy
	}{
		{nil, [5]fleet.RemovalProof{gone, gone, gone, gone, gone}},
		{fleet.ErrRunnerBusy, [5]fleet.RemovalProof{busy, busy, busy, busy, busy}},
		{fleet.ErrNotFound, [5]fleet.RemovalProof{read, none, gone, none, none}},
		{fleet.ErrForbidden, [5]fleet.RemovalProof{read, none, gone, none, busy}},
		{fleet.ErrUncertain, [5]fleet.RemovalProof{}},
		{fleet.ErrRejected, [5]fleet.RemovalProof{}},
		{&fleet.RateLimitedError{}, [5]fleet.RemovalProof{}},
	} {
		for i, beside := range reads {
			answer := row.answer
			if answer != nil {
				answer = fmt.Errorf("removing a runner: %w", answer)
			}
			require.Equal(t, row.want[i], fleet.ProveRemoval(answer, beside), "%v beside %+v", answer, beside)
		}
	}
}
