package recovery_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// stamped is a pod whose label says that it works, and whose poller has ended.
func stamped(p *recovery.Pod) {
	p.OwnerLabel, p.Poller, p.PollerEnded, p.Runner = "acme", recovery.Delivered, true, recovery.NotReady
}

// known has GitHub installed for the account: without one, it is unknown where a runner could be registered.
func (w *world) known() *world {
	w.t.Helper()
	w.submit()
	return w
}

// removable are the pods that the signals ask the controller to remove, with their proof.
func (w *world) removable() map[string]string {
	w.t.Helper()
	w.advance(2 * time.Minute) // a runner whose work is over may exit on its own for so long
	signals, err := w.d.Signals(w.t.Context())
	require.NoError(w.t, err)
	out := map[string]string{}
	for _, r := range signals.Removals {
		out[r.Pod.UID] = r.Proof
	}
	return out
}

// RECV-1: a stamped pod without a claim is removed once the grace is over. It is retired with a proof, on which
// the controller removes Pod and ServiceAccount.
func TestPass_RECV1_AStampedPodWithoutAClaimGoes(t *testing.T) {
	w := newWorld(t).known()
	pod := w.pod(stamped)
	w.notice()
	w.advance(patience - time.Second)
	require.Empty(t, w.pass(), "inside the grace it stays")
	require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
	w.advance(2 * time.Second)
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 1}, w.pass())
	require.Equal(t, fleet.ClaimRetired, w.claim(pod).State)
	require.Equal(t, "acme", w.cluster.get(pod.UID).OwnerLabel, "it is not un-stamped")
	require.Equal(t, map[string]string{pod.UID: dispatch.ProofUnregistered}, w.removable())
	require.Empty(t, w.pass(), "once is enough")
	require.Equal(t, 301, w.counted("bullpen_recovery_delay_seconds_sum")["orphaned_labelled_pod"], "RECV-9")
}

// RECV-1: live claims, claimed as well as running, keep their pods; only the orphans of a mixed batch go.
func TestPass_RECV1_OnlyTheOrphansOfAMixedBatchGo(t *testing.T) {
	w := newWorld(t)
	_, one := w.submit()
	_, other := w.submit()
	claimed, running, idle := w.pod(), w.pod(), w.pod()
	w.served(claimed)
	answer := w.delivered(running)
	_, ended := w.runner(answer)
	w.eventually("GitHub's in_progress has arrived", func() bool { return w.claim(running).State == fleet.ClaimExecuting })
	orphans := []recovery.Pod{w.pod(stamped), w.pod(stamped), w.pod(func(p *recovery.Pod) { p.Poller = recovery.Failed })}
	w.notice()
	w.advance(patience - time.Second)
	fresh := w.pod(stamped)
	w.advance(time.Second)
	ledgertest.Exec(t, w.url, `UPDATE runner_claims SET minted_at = $1 WHERE pod_uid = $2`, w.clock(), claimed.UID)
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 3}, w.pass())
	require.Equal(t, fleet.ClaimMinted, w.claim(claimed).State)
	require.Equal(t, fleet.ClaimExecuting, w.claim(running).State)
	require.Equal(t, fleet.ClaimNone, w.claim(idle).State)
	require.Equal(t, fleet.ClaimNone, w.claim(fresh).State)
	for _, pod := range orphans {
		require.NotEmpty(t, w.claim(pod).Proof)
	}
	one()
	other() // GitHub chooses which of them the runner has
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.eventually("its job ends well", func() bool { return w.claim(running).State == fleet.ClaimSpent })
}

// RECV-4: a list that fails skips the tick.
func TestPass_RECV4_AListFailureSkipsTheTick(t *testing.T) {
	w := newWorld(t).known()
	pod := w.pod(stamped)
	w.notice()
	w.advance(2 * patience)
	w.cluster.listErr = errAPIServer
	require.ErrorIs(t, w.r.Pass(t.Context()), errAPIServer)
	require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
	w.cluster.listErr = nil
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 1}, w.pass())
}

// RECV-1: pods are listed before the claims are read: a pod that is claimed in between is not considered.
func TestPass_RECV1_PodsAreListedBeforeClaims(t *testing.T) {
	w := newWorld(t)
	w.submit()
	pod := w.pod(func(p *recovery.Pod) { p.Runner = recovery.NotReady }) // as a slow probe shows one that was ready
	w.notice()
	w.advance(2 * patience)
	w.cluster.onList = func() {
		w.cluster.onList = nil
		w.served(pod)
	}
	require.Empty(t, w.pass())
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
}

// A crashed or killed poller leaves a pod that looks busy; so does a runner that hangs after its retirement (RECV-5).
func TestPass_RECV5_WhatLooksBusyWithoutAnOwnerIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		show    func(*recovery.Pod)
		retired bool
	}{
		"a crashed poller":                      {show: func(p *recovery.Pod) { p.Poller = recovery.Failed }},
		"retired, asked to stop, and hangs":     {show: func(p *recovery.Pod) { p.Poller, p.Runner = recovery.Delivered, recovery.NotReady }, retired: true},
		"retired, and no longer ready, no more": {show: func(p *recovery.Pod) { p.Runner = recovery.NotReady }, retired: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).known()
			pod := w.pod()
			if c.retired {
				_, err := w.d.Retire(t.Context(), []dispatch.Pod{pod.Pod})
				require.NoError(t, err)
			}
			w.cluster.change(pod.UID, c.show)
			w.notice()
			w.advance(patience - time.Second)
			require.Empty(t, w.pass())
			w.advance(2 * time.Second)
			require.Equal(t, map[string]int{"orphaned_labelled_pod": 1}, w.pass())
			require.Contains(t, w.removable(), pod.UID)
			answers, err := w.d.RetireLost(t.Context(), []dispatch.Pod{pod.Pod})
			require.NoError(t, err)
			require.Equal(t, runnerapi.Granted, answers[0].Verdict)
			require.NotEmpty(t, answers[0].Proof, "it lifts the veto (EXCL-4)")
		})
	}
}

// EXCL-4, EXCL-6: without GitHub's word no veto is lifted, and nothing is counted as recovered.
func TestPass_EXCL4_NoProofNoRemoval(t *testing.T) {
	w := newWorld(t).known()
	pod := w.pod(stamped)
	w.notice()
	w.advance(2 * patience)
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 500, Route: "runners"})
	require.NoError(t, err)
	require.Empty(t, w.pass())
	require.Equal(t, fleet.ClaimNone, w.claim(pod).State)
	require.Equal(t, 1, w.skipped()["unreadable"])
	require.Empty(t, w.removable())
}

// CLAIM-13: there is no claim, and GitHub says that its runner is busy: the rows were lost. It is busy again, and
// charged.
func TestPass_CLAIM13_AnUnknownRunnerIsAdopted(t *testing.T) {
	w := newWorld(t)
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	_, ended := w.runner(answer)
	w.eventually("it executes", func() bool { return w.claim(pod).State == fleet.ClaimExecuting })
	ledgertest.Exec(t, w.url, `DELETE FROM runner_claims`)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_registrations`)
	w.notice()
	w.advance(patience + time.Second)
	require.Equal(t, 1, w.pass()["unknown_runner"])
	claim := w.claim(pod)
	require.Equal(t, fleet.ClaimExecuting, claim.State)
	require.Equal(t, job, claim.JobID)
	require.Equal(t, 1, w.runnersAtGitHub())
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.eventually("it completes", func() bool { return w.claim(pod).State == fleet.ClaimSpent })
}

// TEN-8: a pod whose label could not be written runs its job without: no pass ever writes it. It says beside the label
// which account it works for (POOL-9). CLAIM-6: a wrong label is removed from a pod that asks for work.
func TestPass_TEN8_CLAIM6_NoLabelIsWrittenIntoAJob(t *testing.T) {
	w := newWorld(t)
	w.submit()
	w.cluster.stampErr = errAPIServer
	pod := w.pod()
	answer := w.served(pod)
	_, err := w.d.Acknowledge(t.Context(), pod.Pod, answer.Generation)
	require.NoError(t, err)
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Poller, p.PollerEnded, p.Runner = recovery.Delivered, true, recovery.NotReady })
	w.advance(time.Minute)
	require.Empty(t, w.pass())
	require.Positive(t, w.skipped()["failed"])
	w.cluster.locked(func() { w.cluster.stampErr = nil })
	require.Equal(t, map[string]int{"missing_label": 1}, w.pass())
	require.Equal(t, w.claim(pod).Account.ID, w.cluster.get(pod.UID).OwnerID)
	w.advance(time.Minute)
	require.Zero(t, w.pass()["missing_label"], "once")
	require.Empty(t, w.cluster.get(pod.UID).OwnerLabel, "a label appears in the middle of a job")

	liar := w.pod(func(p *recovery.Pod) { p.OwnerLabel = "acme" })
	w.notice()
	w.advance(patience - time.Second)
	require.Zero(t, w.pass()["stale_label"])
	w.advance(2 * time.Second)
	require.Equal(t, 1, w.pass()["stale_label"])
	require.Empty(t, w.cluster.get(liar.UID).OwnerLabel)
	require.Equal(t, fleet.ClaimNone, w.claim(liar).State)
}

// A label that cannot be written does not stop the judgement of the claim.
func TestPass_CLAIM6_AStampThatFailsIsNotFatal(t *testing.T) {
	w := newWorld(t)
	w.submit()
	w.cluster.stampErr = errAPIServer
	pod := w.pod()
	answer := w.served(pod)
	_, err := w.d.Acknowledge(t.Context(), pod.Pod, answer.Generation)
	require.NoError(t, err)
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Poller, p.PollerEnded, p.Runner = recovery.Delivered, true, recovery.Ready })
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"agent_never_registered": 1}, w.pass())
}

// RECV-5: a job whose row says that a claim has it while none does is queued again; one that is recorded as running, when GitHub reports it
// as queued, or as completed.
func TestPass_RECV5_AnUnclaimedJobIsQueuedAgain(t *testing.T) {
	w := newWorld(t)
	w.pod()
	bound, _ := w.submit()
	runs, _ := w.submit()
	gone, _ := w.submit()
	ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'claimed' WHERE id = $1`, bound)
	ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'executing', runner_name = 'x', started_at = now(), updated_at = $2 WHERE id = ANY ($1)`,
		[]int64{runs, gone}, w.clock())
	w.losing("completed")
	require.NoError(t, w.gh.Admin.CancelJob(t.Context(), gone))
	require.Equal(t, map[string]int{"unclaimed_job": 1}, w.pass())
	require.Equal(t, fleet.JobQueued, w.jobState(bound))
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"unclaimed_job": 1, "orphan_completed": 1}, w.pass())
	require.Equal(t, fleet.JobQueued, w.jobState(runs))
	require.Equal(t, fleet.JobCancelled, w.jobState(gone))
	w.served(w.pod())
}

// The remains of a pod that is gone: its session is closed, and its registration removed.
func TestPass_RECV5_WhatAPodLeavesBehindIsCleared(t *testing.T) {
	w := newWorld(t)
	w.submit()
	pod, other := w.pod(), w.pod()
	answer := w.delivered(pod)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_claims`) // as after a restore
	require.Empty(t, w.pass()["orphaned_runner_session"], "the pod is there")
	w.cluster.drop(pod.UID)
	require.Equal(t, 1, w.pass()["orphaned_runner_session"])
	require.Zero(t, ledgertest.Int(t, w.url, `SELECT count(*) FROM runner_sessions WHERE ended_at IS NULL`))
	sessions, jobs, _ := w.usage()
	require.Equal(t, [2]int64{1, 0}, [2]int64{sessions, jobs}, "it was used once, and had no job")
	require.Equal(t, 1, w.runnersAtGitHub(), answer.JIT.Name)
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"orphaned_registration": 1}, w.pass())
	require.Zero(t, w.runnersAtGitHub())
	require.Empty(t, w.pass())
	require.Equal(t, fleet.ClaimNone, w.claim(other).State)
}

// RECV-5: a mint that GitHub carries out after it was given up is found and removed. Its configuration was never received,
// but its registration would stay for a day. One that never comes is searched for once more, and no oftener.
func TestPass_RECV5_AMintThatComesLateIsRemoved(t *testing.T) {
	for _, comes := range []bool{true, false} {
		w := newWorld(t)
		w.submit()
		_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Route: "generate-jitconfig", Status: 502, Times: 1})
		require.NoError(t, err)
		pod := w.pod()
		w.pod() // a list without pods says nothing
		w.eventually("the mint gets no certain answer", func() bool {
			answer, err := w.d.Poll(t.Context(), pod.Pod, 0)
			return err == nil && answer.Reply == dispatch.ReplyRetry
		})
		w.advance(10 * time.Second) // the back-off
		answer := w.served(pod)
		const doubtful = `FROM runner_registrations WHERE doubtful`
		require.EqualValues(t, 1, ledgertest.Int(t, w.url, `SELECT count(*) `+doubtful))
		late := ledgertest.Text(t, w.url, `SELECT runner_name `+doubtful)
		require.NotEqual(t, answer.JIT.Name, late)
		if comes {
			_, err = w.forge.Mint(t.Context(), 101, fleet.MintRequest{Scope: fleet.Scope{Owner: "acme"}, Name: late, Labels: []string{"linux"}})
			require.NoError(t, err)
			require.Equal(t, 2, w.runnersAtGitHub())
		}
		w.advance(patience + time.Second)
		w.pass()
		require.EqualValues(t, 1, ledgertest.Int(t, w.url, `SELECT count(*) `+doubtful), "its pod has a row")
		ledgertest.Exec(t, w.url, `DELETE FROM runner_claims`)
		w.cluster.drop(pod.UID)
		require.Equal(t, 1, w.pass()["orphaned_registration"])
		require.Zero(t, w.runnersAtGitHub())
		w.advance(patience + time.Second)
		require.Empty(t, w.pass()["orphaned_registration"], "it is doubted once")
	}
}

// A row that was left for a UID that is gone already is forgotten, and the session of a claim that was released says when
// its job ended.
func TestPass_RECV5_NoRowsStay(t *testing.T) {
	w := newWorld(t)
	job, _ := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	w.startsByHand(job, answer.JIT.Name)
	w.terminal(pod)
	require.Equal(t, map[string]int{"orphaned_runner": 1}, w.check(pod))
	require.EqualValues(t, 1, ledgertest.Int(t, w.url, `SELECT count(*) FROM runner_sessions WHERE job_ended_at IS NOT NULL`))
	sessions, jobs, running := w.usage()
	require.Equal(t, [2]int64{1, 1}, [2]int64{sessions, jobs})
	w.advance(time.Hour)
	_, _, later := w.usage()
	require.Equal(t, running, later, "a job whose runner was released takes no more time")
	gone := w.pod()
	w.cluster.drop(gone.UID)
	_, err := w.d.Retire(t.Context(), []dispatch.Pod{gone.Pod, pod.Pod})
	require.NoError(t, err)
	w.cluster.drop(pod.UID)
	w.d.PodGone(pod.Pod)
	w.d.PodGone(gone.Pod)
	w.eventually("the rows are forgotten", func() bool { return w.claim(gone).State == fleet.ClaimNone && w.claim(pod).State == fleet.ClaimNone })
}

// RECV-6: each kind has a cap in a pass, says when it met it, and continues at the next.
func TestPass_RECV6_CapsHold(t *testing.T) {
	w := newWorld(t, func(o *recovery.Options) { o.Caps = map[recovery.Kind]int{recovery.OrphanedLabelledPod: 2} }).known()
	for range 5 {
		w.pod(stamped)
	}
	w.notice()
	w.advance(2 * patience)
	for _, want := range []int{2, 2, 1} {
		require.Equal(t, map[string]int{"orphaned_labelled_pod": want}, w.pass())
	}
	capped := w.counted("bullpen_recovery_capped_total")
	require.Len(t, capped, len(recovery.Kinds()), "those that were never capped are there, so that a first time is a rise")
	maps.DeleteFunc(capped, func(_ string, passes int) bool { return passes == 0 })
	require.Equal(t, map[string]int{"orphaned_labelled_pod": 2}, capped)
	require.Contains(t, w.log.String(), "reached its limit for one kind")
}

// RECV-5: registrations that GitHub does not remove do not use up the cap of those that it does.
func TestPass_RECV5_RECV6_WhatFailsUsesUpNoCap(t *testing.T) {
	w := newWorld(t, func(o *recovery.Options) {
		o.Caps, o.Workers = map[recovery.Kind]int{recovery.StaleClaim: 1}, 1
	})
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 422, Route: "DELETE", Times: 2})
	require.NoError(t, err)
	for range 3 {
		w.submit()
		w.served(w.pod())
	}
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"stale_claim": 1}, w.pass())
	require.Equal(t, 2, w.skipped()["busy"], "EXCL-6: 422 keeps")
}

// The kill switch of a kind stops that kind alone.
func TestPass_RECV9_AKindCanBeSwitchedOff(t *testing.T) {
	w := newWorld(t, func(o *recovery.Options) { o.Off = []recovery.Kind{recovery.OrphanedLabelledPod} })
	w.submit()
	pod := w.pod()
	w.served(pod)
	leak := w.pod(stamped)
	w.notice()
	w.advance(2 * patience)
	require.Equal(t, map[string]int{"stale_claim": 1}, w.pass())
	require.Equal(t, fleet.ClaimNone, w.claim(leak).State)
	require.Equal(t, 1, w.skipped()["off"])
	_, err := recovery.New(recovery.Options{Ledger: w.store, Cluster: w.cluster, GitHub: w.forge, Claims: w.d, Off: []recovery.Kind{"no_such"}})
	require.ErrorContains(t, err, "there is no kind of recovery")
}

// One pass asks so much of GitHub for one installation, and an installation that says nothing does not hold up the others.
func TestPass_RECV6_GitHubIsAskedSoMuch(t *testing.T) {
	w := newWorld(t, func(o *recovery.Options) { o.Requests, o.Workers = 4, 1 })
	for range 6 {
		w.submit()
		w.served(w.pod())
	}
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"stale_claim": 2}, w.pass(), "a runner and a job each")
	require.Equal(t, 4, w.skipped()["quota"])
	_, err := w.gh.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-status", Status: 500})
	require.NoError(t, err)
	before := w.requests()
	require.Empty(t, w.pass())
	require.Equal(t, 3, w.requests()-before, "three answers that say nothing")
}

// CLAIM-15: an action is bound to the claim that was judged. One that moved between the judgement and the act is not
// touched, and neither is a replacement of the same name.
func TestCheckPod_CLAIM15_ALateCheckTouchesNoOtherClaim(t *testing.T) {
	w := newWorld(t)
	w.submit()
	pod := w.pod()
	w.served(pod)
	w.advance(patience + time.Second)
	old, err := w.store.Suspects(t.Context(), recovery.Look{Named: []string{pod.UID}, Now: w.clock(), Most: 1})
	require.NoError(t, err)
	w.served(pod) // its poll takes the claim over: it is alive after all
	w.advance(time.Second)
	ending, err := w.d.EndClaim(t.Context(), old[0].Claim, false, w.clock())
	require.NoError(t, err)
	require.Equal(t, dispatch.EndedByOthers, ending)
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
	require.Equal(t, 1, w.runnersAtGitHub())

	w.submit()
	next := pod
	next.UID = "11111111-2222-3333-4444-555555555555"
	ledgertest.Exec(t, w.url, `UPDATE runner_claims SET pod_name = pod_name || '-former'`)
	w.cluster.drop(pod.UID)
	w.cluster.put(next)
	w.served(next)
	_, err = w.d.PodStopped(t.Context(), pod.UID, w.clock(), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"pod_missing_claim": 1}, w.check(pod))
	require.Equal(t, fleet.ClaimMinted, w.claim(next).State)
}

// EXCL-6: a restored ledger does not know of a registration that GitHub lists: the claim does not end before that is gone
// too, and not at all while it works.
func TestPass_EXCL6_WhatNoRowKnowsIsRemovedToo(t *testing.T) {
	w := newWorld(t)
	w.losing("in_progress")
	job, release := w.submit()
	pod := w.pod()
	answer := w.delivered(pod)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_registrations`)
	_, ended := w.runner(answer)
	w.registered(answer.JIT.Name, busy)
	ledgertest.Exec(t, w.url, `UPDATE runner_claims SET job_id = NULL`)
	w.advance(patience + time.Second)
	require.Equal(t, map[string]int{"unclaimed_job": 1}, w.pass())
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
	require.Equal(t, 1, w.skipped()["busy"])
	release()
	require.NoError(t, await.Receive(t, ended, "the runner exits"))
	w.eventually("GitHub has removed it", func() bool { return w.runnersAtGitHub() == 0 })
	// It was queued again without its claim: until the ledger has its end, the next pod may be claimed for it.
	w.eventually("its end is on record", func() bool { return w.jobState(job) == fleet.JobCompleted })

	w.submit()
	idle := w.pod()
	w.delivered(idle)
	ledgertest.Exec(t, w.url, `DELETE FROM runner_registrations WHERE pod_uid = $1`, idle.UID)
	w.advance(patience + time.Second)
	require.Equal(t, 1, w.pass()["unregistered_runner"])
	require.Equal(t, fleet.ClaimSpent, w.claim(idle).State)
	require.Zero(t, w.runnersAtGitHub())
}

// frozenClaims are those of a ledger that is not trusted.
type frozenClaims struct{ recovery.Claims }

func (frozenClaims) Frozen() (string, bool) { return "it was restored", true }

// CLAIM-17: while the ledger is not trusted, it causes no recovery.
func TestPass_CLAIM17_WaitsWhileTheLedgerIsFrozen(t *testing.T) {
	w := newWorld(t, func(o *recovery.Options) { o.Claims = frozenClaims{o.Claims} })
	job, _ := w.submit()
	w.pod()
	ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'claimed' WHERE id = $1`, job)
	require.Empty(t, w.pass())
	require.Empty(t, w.check(w.pod()))
	require.Equal(t, fleet.JobClaimed, w.jobState(job))
	require.Equal(t, 2, w.skipped()["frozen"])
}

// A check of a pod that nothing is left of, or that cannot be read, does nothing.
func TestCheckPod_RECV5_InDoubtNothing(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.r.CheckPod(t.Context(), "no-such-uid"))
	w.submit()
	pod := w.pod()
	w.served(pod)
	w.advance(2 * patience)
	w.cluster.listErr = errAPIServer
	require.True(t, errors.Is(w.r.CheckPod(t.Context(), pod.UID), errAPIServer))
	require.Equal(t, fleet.ClaimMinted, w.claim(pod).State)
}
