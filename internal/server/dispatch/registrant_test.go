package dispatch_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

var intruder = dispatch.Account{ID: 66, Login: "intruder", InstallationID: 166}

// CLAIM-13, CLAIM-17: what is known of a pod's runner counts; rows that a restored ledger has lost refuse no runner.
func TestAdmit_CLAIM13_CLAIM17_WhatIsKnownCountsAndWhatIsLostDoesNot(t *testing.T) {
	const mine, other = 1, 66
	adoption := dispatch.Adoption{RunnerName: "bp-x-1", PodUID: "pod", Account: dispatch.Account{ID: mine}}
	for name, c := range map[string]struct {
		known    dispatch.Registrant
		admitted bool
	}{
		"nothing is known":                              {dispatch.Registrant{}, true},
		"the claim is its own":                          {dispatch.Registrant{ClaimAccount: mine}, true},
		"the claim is its own, the label is not yet":    {dispatch.Registrant{ClaimAccount: mine, LabelAccount: other}, true},
		"the claim is another's":                        {dispatch.Registrant{ClaimAccount: other}, false},
		"the claim is another's, whatever else is said": {dispatch.Registrant{other, "pod", mine, mine}, false},
		"the name is its own":                           {dispatch.Registrant{RegisteredPod: "pod", RegisteredAccount: mine}, true},
		"the name is its own, a label is left":          {dispatch.Registrant{RegisteredPod: "pod", RegisteredAccount: mine, LabelAccount: other}, true},
		"the name is another's":                         {dispatch.Registrant{RegisteredPod: "pod", RegisteredAccount: other}, false},
		"the name is another pod's":                     {dispatch.Registrant{mine, "pod-2", mine, mine}, false},
		"only its label is left":                        {dispatch.Registrant{LabelAccount: mine}, true},
		"only another's label is left":                  {dispatch.Registrant{LabelAccount: other}, false},
	} {
		err := c.known.Admit(adoption)
		require.Equal(t, c.admitted, err == nil, name)
		if err != nil {
			require.ErrorIs(t, err, dispatch.ErrForeignRunner, name)
		}
	}
}

// CLAIM-13: an organization may give a runner of its own the name of another's pod. GitHub then confirms that it is busy,
// and the pod stays what it was. The runner of the account itself is adopted by any evidence that a restored ledger has
// left (CLAIM-17).
func TestAdoption_CLAIM13_CLAIM17_AForeignRunnerIsNotAdopted(t *testing.T) {
	lose := func(h *harness, tables ...string) {
		for _, table := range tables {
			ledgertest.Exec(t, h.url, `DELETE FROM `+table)
		}
	}
	label := func(h *harness, pod dispatch.Pod) {
		pod.OwnerLabel, pod.OwnerID = runnerpod.OwnerLabelValue(acme.Login), acme.ID
		h.cluster.PutPod(pod)
	}
	for name, c := range map[string]struct {
		prepare func(h *harness, pod dispatch.Pod)
		by      dispatch.Account
		adopted bool
	}{
		"another's, the claim is spent":               {func(*harness, dispatch.Pod) {}, intruder, false},
		"another's, registrations are lost":           {func(h *harness, _ dispatch.Pod) { lose(h, "runner_registrations") }, intruder, false},
		"another's, all but the label is lost":        {func(h *harness, pod dispatch.Pod) { lose(h, "runner_registrations", "runner_claims"); label(h, pod) }, intruder, false},
		"its own, nothing is lost":                    {func(*harness, dispatch.Pod) {}, acme, true},
		"its own, registrations are lost":             {func(h *harness, _ dispatch.Pod) { lose(h, "runner_registrations") }, acme, true},
		"its own, claim and registrations are lost":   {func(h *harness, _ dispatch.Pod) { lose(h, "runner_registrations", "runner_claims") }, acme, true},
		"its own, all but the label is lost":          {func(h *harness, pod dispatch.Pod) { lose(h, "runner_registrations", "runner_claims"); label(h, pod) }, acme, true},
		"its own, the pod was retired by a later row": {func(h *harness, pod dispatch.Pod) { h.retiredAgain(pod) }, acme, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			h.install(intruder)
			registry := prometheus.NewRegistry()
			d := h.replica(func(o *dispatch.Options) { o.Metrics = registry })
			h.queue(1)
			pod := h.pod("linux")
			own := h.started(d, pod, 1).JIT.Name
			h.record(job(fleet.JobEventCompleted, 1, by(own)))
			c.prepare(h, pod)
			before := h.claim(pod)

			runner := h.ghost(pod)
			h.forge.Start(runner, 0)
			h.record(job(fleet.JobEventStarted, 50, by(runner), from(c.by)))
			h.eventually("decided", func() bool { return counted(t, registry, "bullpen_dispatch_adoptions_total") })
			if c.adopted {
				h.eventually("adopted", func() bool { return h.claim(pod).State == fleet.ClaimExecuting })
				require.Equal(t, c.by.ID, h.claim(pod).Account.ID)
				return
			}
			h.eventually("closed", func() bool { return ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_adoptions`) == 0 })
			require.Equal(t, before, h.claim(pod))
			require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE runner_name = $1`, runner))
		})
	}
}

// retiredAgain stands for a ledger that lost the claim and in which the pod was retired since.
func (h *harness) retiredAgain(pod dispatch.Pod) {
	ledgertest.Exec(h.t, h.url, `DELETE FROM runner_claims`)
	_, err := h.store.Retire(h.t.Context(), []dispatch.Pod{pod}, time.Now())
	require.NoError(h.t, err)
}

// CLAIM-13: the very name of a runner that was registered for another account is not even asked about, and an adoption that is pending stays its
// account's.
func TestRecordJob_CLAIM13_TheNameOfAnothersRunnerAsksForNothing(t *testing.T) {
	h := newHarness(t)
	h.install(intruder)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	own := h.started(d, pod, 1).JIT.Name
	h.record(job(fleet.JobEventCompleted, 1, by(own)))
	rec := h.record(job(fleet.JobEventStarted, 50, by(own), from(intruder)))
	require.True(t, rec.Foreign)
	require.False(t, rec.Adoption)

	unknown := h.ghost(h.pod("linux")) // of a ledger that has lost the row
	const pending = `SELECT account_id || ' ' || job_id FROM runner_adoptions WHERE runner_name = $1`
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Unread = fleet.ErrUncertain }) // it stays pending
	require.True(t, h.record(job(fleet.JobEventStarted, 51, by(unknown))).Adoption)
	h.record(job(fleet.JobEventStarted, 52, by(unknown), from(intruder)))
	require.Equal(t, "1 51", ledgertest.Text(t, h.url, pending, unknown))
}

// CLAIM-13, CLAIM-17: what a rebuilding finds of another account under the name of a pod whose work is over is not written down for the pod.
func TestRebuild_CLAIM13_CLAIM17_AForeignRunnerIsNotWrittenDown(t *testing.T) {
	h := newHarness(t)
	h.queue(1)
	pod := h.pod("linux")
	own := h.started(h.replica(), pod, 1).JIT.Name
	h.record(job(fleet.JobEventCompleted, 1, by(own)))
	pool, _ := h.cluster.Pool(pod.Pool)
	runner := h.ghost(pod)
	seen, ok := dispatch.FoundAt(pod, pool, roster.Sighting{Found: []roster.Found{{
		Registration: fleet.Registration{Name: runner, ID: 9, Online: true, Busy: true}, Scope: fleet.Scope{Owner: intruder.Login},
		Owner: fleet.Owner{ID: intruder.ID, Login: intruder.Login, InstallationID: intruder.InstallationID},
	}}})
	require.True(t, ok)
	state, err := h.store.Rebuild(t.Context(), h.turn(), seen, time.Now())
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimSpent, state)
	require.Equal(t, acme, h.claim(pod).Account)
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE runner_name = $1`, runner))
}

// CLAIM-13: a pod that is adopted by GitHub's list gets the job of its own account, and not one that another account runs on a runner of the same
// name.
func TestRetireLost_CLAIM13_AnotherAccountsJobIsNotBound(t *testing.T) {
	h := newHarness(t)
	h.install(intruder)
	pod := h.pod("linux")
	pod.OwnerLabel, pod.OwnerID = runnerpod.OwnerLabelValue(acme.Login), acme.ID
	h.cluster.PutPod(pod)
	d := h.listed()
	runner := h.registered(pod, true)
	h.record(job(fleet.JobEventStarted, 70, by(runner), from(intruder)))
	h.eventually("refused", func() bool { return ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_adoptions`) == 0 })
	answer := h.lost(d, pod)[0]
	require.Equal(t, acme.Login, answer.Owner)
	claim := h.claim(pod)
	require.Equal(t, fleet.ClaimExecuting, claim.State)
	require.Equal(t, acme.ID, claim.Account.ID)
	require.Zero(t, claim.JobID)
	h.record(job(fleet.JobEventStarted, 71, by(runner)))
	require.EqualValues(t, 71, h.claim(pod).JobID)
}
