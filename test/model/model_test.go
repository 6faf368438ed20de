package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// walked is one exhaustive walk.
type walked struct {
	name   string
	config config
	large  bool // in make test-deep
}

var exhaustive = []walked{
	{name: "one pod, one job, any fault", config: config{pods: 1, jobs: 1, faults: 1, allow: butRestores, lateQueued: true}},
	{name: "one pod, two jobs", config: config{pods: 1, jobs: 2}},
	{name: "one pod, one job, any fault, without recovery",
		config: config{pods: 1, jobs: 1, faults: 1, allow: butRestores, noRecovery: true, noLiveness: true}},
	{name: "two pods, one job, without recovery",
		config: config{pods: 2, jobs: 1, requests: 1, noRecovery: true, noLiveness: true}},
	{name: "two pods, two jobs, room for one, without recovery and removal",
		config: config{pods: 2, jobs: 2, requests: 1, budget: 1, noRecovery: true, removable: -1, noLiveness: true}},
	{name: "one pod, two jobs, any fault", config: config{pods: 1, jobs: 2, faults: 1, allow: butRestores}, large: true},
	{name: "two pods, two jobs, without recovery and removal", large: true,
		config: config{pods: 2, jobs: 2, requests: 1, noRecovery: true, removable: -1, noLiveness: true}},
	{name: "two pods, one job, one of them to be removed", large: true, config: config{pods: 2, jobs: 1, requests: 1, removable: 1}},
	{name: "one pod, two jobs, GitHub's word lags, a removal's too", config: lagging},
	{name: "one pod, two jobs, GitHub's word lags, but for a removal's",
		config: config{pods: 1, jobs: 2, faults: 1, allow: faultLag, prompt: true, refuses: true}},
	{name: "one pod, one job, a restore and its hold, without recovery",
		config: config{pods: 1, jobs: 1, faults: 1, allow: faultRestore, noRecovery: true, noLiveness: true}},
	{name: "one pod, one job, a restore and its hold", config: config{pods: 1, jobs: 1, faults: 1, allow: faultRestore}, large: true},
	{name: "one pod, one job, a restore without its hold",
		config: config{pods: 1, jobs: 1, faults: 1, allow: faultRestore, synced: true, noHold: true}, large: true},
}

// lagging: GitHub shows a busy runner as idle, has not registered its job, and lets it be removed. In every walk in_progress may take any
// time, and GitHub may give any runner any job.
var lagging = config{pods: 1, jobs: 2, faults: 1, allow: faultLag, prompt: true}

// TestExhaustive_EXCL_CLAIM_RECV walks everything within the bounds, with every guard in place. No rule is broken, and
// from every state a path leads to where each claim ends, each job ends or is queued, and each pod is deleted.
func TestExhaustive_EXCL_CLAIM_RECV(t *testing.T) {
	for _, w := range exhaustive {
		t.Run(w.name, func(t *testing.T) {
			if w.large {
				deep.Only(t, "each other row of TestExhaustive_EXCL_CLAIM_RECV")
			}
			requireNothing(t, w.config)
		})
	}
}

// TestHealthy_CLAIM7_CLAIM16_NoPodIsLost: neither a server that dies, nor a mint that times out, nor a lost answer costs a
// pod or a job, with no recovery at all.
func TestHealthy_CLAIM7_CLAIM16_NoPodIsLost(t *testing.T) {
	requireNothing(t, config{
		pods: 1, jobs: 2, faults: 2, allow: faultCrash | faultMintTimeout | faultConnection,
		noRecovery: true, removable: -1, healthy: true, noticed: true,
	})
}

// TestHalfOpen_CLAIM7_CostsNothing: a request whose connection is half open, and which a replica begins with only after
// the pod's next request was answered, takes nothing over: it is the earlier one by its number.
func TestHalfOpen_CLAIM7_CostsNothing(t *testing.T) {
	requireNothing(t, config{
		pods: 1, jobs: 2, faults: 2, allow: faultConnection | faultCrash, noRecovery: true, removable: -1, healthy: true,
		leased: true,
	})
}

// TestHalfOpen_CLAIM7_AnAgentThatNumbersNothingMayLoseItsPod says why requests are numbered: without, the walk finds how
// the configuration that was just delivered is taken back.
func TestHalfOpen_CLAIM7_AnAgentThatNumbersNothingMayLoseItsPod(t *testing.T) {
	const rule = "CLAIM-7 a configuration was delivered and then taken back"
	r := check(config{
		pods: 1, jobs: 1, faults: 1, allow: faultConnection, noRecovery: true, removable: -1, healthy: true, leased: true,
		unnumbered: true, noLiveness: true, until: rule,
	})
	require.Contains(t, r.broken, rule)
}

func requireNothing(t *testing.T, c config) result {
	t.Helper()
	r := check(c)
	t.Logf("%d states, %d steps in %s", r.states, r.steps, r.took.Round(1e8))
	for _, trace := range r.broken {
		t.Error(trace)
	}
	require.False(t, r.cut, "there are more states than the limit")
	return r
}
