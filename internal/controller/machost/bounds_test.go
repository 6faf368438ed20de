package machost

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

// The names of steps come from the Mac, and the status has room for one Mac's.
func TestShowSteps_AMacCannotFillTheStatus(t *testing.T) {
	var s v1alpha1.MacHostStatus
	for attempt := range 10 {
		var steps []stepView
		for i := range mostSteps {
			steps = append(steps, stepView{Name: fmt.Sprintf("s%d-%d", attempt, i), Phase: machost.PhaseFailed})
		}
		showSteps(&s, steps, false, 1, noon)
		require.LessOrEqual(t, len(s.Conditions), mostSteps)
	}
}

// NODE-3: what may start a machine at any time is not disrupted, though none runs at this moment.
func TestNodeView_NODE3_InServiceUntilItIsCordonedAndEmpty(t *testing.T) {
	ready := nodeView{Wanted: true, Exists: true, Ready: true}
	cordoned, busy := ready, ready
	cordoned.Unschedulable = true
	busy.Unschedulable, busy.Runners = true, 1
	require.True(t, ready.inService())
	require.True(t, busy.inService())
	require.False(t, cordoned.inService())
	require.False(t, nodeView{Wanted: true}.inService(), "no agent could start one")
	require.False(t, nodeView{Wanted: true, Exists: true}.inService(), "a Mac with a dead agent must be repaired")
}

// The first key is that of a machine which accepted the login: another one may have the Mac's address.
func TestConclude_TrustsNoKeyOfAMachineThatRefusesTheLogin(t *testing.T) {
	for outcome, trusted := range map[Outcome]bool{
		OutcomeSucceeded: true, OutcomeDeferred: true, OutcomeFailed: true, OutcomeWrongPassword: true,
		OutcomeLoginRefused: false, OutcomeUnreachable: false, OutcomeHostKeyChanged: false,
	} {
		var mac v1alpha1.MacHost
		result := &Result{Outcome: outcome, HostKey: "SHA256:a"}
		conclude(&mac, result, noon)
		require.Equal(t, trusted, mac.Status.HostKey == "SHA256:a", outcome)
		mac.Spec.HostKey = "SHA256:a"
		conclude(&mac, result, noon)
		require.Equal(t, "SHA256:a", mac.Status.HostKey, "an administrator has trusted it")
	}
}
