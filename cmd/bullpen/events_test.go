package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/clusterevents"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/controller/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/runner"
	"github.com/bullpen-ci/bullpen/internal/controller/runnerdeployment"
	"github.com/bullpen-ci/bullpen/internal/controller/runnerpool"
	"github.com/bullpen-ci/bullpen/internal/controller/runnerscaler"
)

// `bullpen events -A` leaves out what no part of the fleet wrote: it must know all of them.
func TestEvents_KnowsEveryReporter(t *testing.T) {
	for _, name := range []string{
		machost.Name, registered.Name, runner.Name, runnerdeployment.Name, runnerpool.Name, runnerscaler.Name, "runnerset", "runnerreplicaset", "bullpen-node",
	} {
		require.True(t, clusterevents.Reports(name), name)
	}
	require.False(t, clusterevents.Reports("kubelet"))
}
