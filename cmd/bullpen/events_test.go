package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runner"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerdeployment"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerscaler"
)

// `bullpen events -A` leaves out what no part of the fleet wrote: it must know all of them.
func TestEvents_KnowsEveryReporter(t *testing.T) {
	for _, name := range []string{
		machost.Name, registered.Name, runner.Name, runnerdeployment.Name, pool.Name, runnerscaler.Name, "runnerset", "runnerreplicaset", "bullpen-node",
	} {
		require.True(t, clusterevents.Reports(name), name)
	}
	require.False(t, clusterevents.Reports("kubelet"))
}
