package machost

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/remote"
)

// The outcome decides whether, and when, there is another attempt. In doubt a password counts as refused: accounts get locked.
func TestOutcome_OfEachFailure(t *testing.T) {
	for want, errs := range map[Outcome][]error{
		OutcomeSucceeded: {nil},
		OutcomeDeferred:  {machost.ErrBusy, fmt.Errorf("applying: %w", machost.ErrBusy)},
		OutcomeWrongPassword: {
			&remote.SudoError{User: "ci"}, &remote.SudoError{User: "ci", Unknown: true},
			&machost.StepError{Step: "auto-login", Err: fmt.Errorf("sealed: %w", machost.ErrWrongPassword)},
		},
		OutcomeHostKeyChanged: {&remote.HostKeyError{Want: []string{"a"}, Got: []string{"b"}}},
		OutcomeLoginRefused:   {&remote.AuthError{User: "ci", Err: errors.New("no")}},
		OutcomeUnreachable: {
			&remote.UnreachableError{Err: errors.New("no")}, &remote.LostError{Stage: remote.StageUpload, Err: errors.New("gone")},
			&remote.LostError{Stage: remote.StageSudo, Err: errors.New("gone, and no password was sent")}, // otherwise it is a SudoError
		},
		OutcomeFailed: {
			&remote.SudoError{User: "ci", Missing: true}, &machost.StepError{Step: "tart", Err: errors.New("no")}, &remote.UnsupportedError{}, errors.New("else"),
			&remote.LostError{Stage: remote.StageApply, Err: errors.New("it has cut itself off")},
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, outcomeOf(err), "%v", err)
		}
	}
}
