package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// The ledger decides a runner's stage, and without a row its pod's signs; any sign of work counts as work (EXCL-4).
func TestStageOf_EXCL4(t *testing.T) {
	ready := RunnerPod{Ready: true}
	for name, c := range map[string]struct {
		pod   RunnerPod
		claim fleet.ClaimState // "": none
		want  string
	}{
		"just made":                           {RunnerPod{}, "", "starting"},
		"ready":                               {ready, "", "idle"},
		"chosen":                              {ready, fleet.ClaimClaimed, "assigned"},
		"registered":                          {RunnerPod{}, fleet.ClaimMinted, "registered"},
		"at work":                             {RunnerPod{}, fleet.ClaimExecuting, "busy"},
		"at work while it is deleted":         {RunnerPod{Pod: dispatch.Pod{Deleting: true}}, fleet.ClaimExecuting, "busy"},
		"an owner's label without a claim":    {RunnerPod{Pod: dispatch.Pod{OwnerLabel: "acme"}, Ready: true}, "", "busy"},
		"its configuration without a claim":   {RunnerPod{Pod: dispatch.Pod{PollerEnded: true}}, "", "busy"},
		"retired":                             {ready, fleet.ClaimRetired, "terminating"},
		"deleted":                             {RunnerPod{Pod: dispatch.Pod{Deleting: true}, Ready: true}, "", "terminating"},
		"its job is over":                     {RunnerPod{}, fleet.ClaimSpent, "finished"},
		"its containers have ended":           {RunnerPod{Ended: true}, fleet.ClaimExecuting, "finished"},
		"its containers have ended, no claim": {RunnerPod{Ended: true}, "", "finished"},
	} {
		got := stageOf(c.pod, RunnerClaim{State: c.claim}, c.claim != "")
		require.Equal(t, c.want, got, name)
		require.Contains(t, adminapi.RunnerStages(), got)
	}
}

func TestSelectStages_NewAndFormerNames(t *testing.T) {
	stages, err := selectStages([]string{"booting", "idle", "claimed", "minted", "leaving", "terminating"})
	require.NoError(t, err)
	require.Equal(t, []string{"starting", "idle", "assigned", "registered", "terminating", "terminating"}, stages)
	stages, err = selectStages(nil)
	require.NoError(t, err)
	require.Empty(t, stages, "all")
	_, err = selectStages([]string{"asleep"})
	require.ErrorContains(t, err, "stage must be one of starting, idle, assigned, registered, busy, terminating, finished")
}
