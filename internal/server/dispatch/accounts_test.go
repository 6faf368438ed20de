package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

func change(login string) admin.Change {
	return admin.Change{Account: login, Actor: "ada", Credential: "JTI=1", Reason: "a test", At: time.Now()}
}

func (h *harness) installation(action string, a dispatch.Account) {
	h.t.Helper()
	_, err := h.store.RecordInstallation(h.t.Context(), h.delivery("installation"), dispatch.Installation{Action: action, Account: a})
	require.NoError(h.t, err)
}

func (h *harness) account(login string) adminapi.Account {
	h.t.Helper()
	a, err := h.store.Account(h.t.Context(), login)
	require.NoError(h.t, err)
	return a
}

func (h *harness) pause(login string, paused bool) {
	h.t.Helper()
	_, err := h.store.Pause(h.t.Context(), change(login), paused)
	require.NoError(h.t, err)
}

// claims runs batches for that many fresh polls until they find nothing, and returns their claims.
func (h *harness) claims(pool dispatch.Pool, polls int) []dispatch.Claim {
	h.t.Helper()
	b := h.batchOf(pool, dispatch.LabelKey(pool.Labels), polls)
	var all []dispatch.Claim
	for more := true; more && len(b.Polls) > 0; {
		result, err := h.store.ClaimBatch(h.t.Context(), b)
		require.NoError(h.t, err)
		all = append(all, result.Claims...)
		b.Polls = b.Polls[len(result.Claims):]
		more = result.More
	}
	return all
}

// finish lets the claim's runner complete the job, and its pod end.
func (h *harness) finish(claim dispatch.Claim) {
	h.t.Helper()
	h.record(job(fleet.JobEventCompleted, claim.JobID, by(claim.RunnerName), from(claim.Account)))
	require.NoError(h.t, h.store.PodStopped(h.t.Context(), claim.PodUID, time.Now(), nil))
}

// CLAIM-5: what GitHub and administrators block is blocked, not lost; what runs ends normally; and both must be off.
func TestSuspend_CLAIM5_QueuedJobsAreBlockedAndGoOnAtOnce(t *testing.T) {
	h := newHarness(t)
	one, two := h.replica(), h.replica()
	h.queue(1)
	running := h.pod("linux")
	answer := h.started(one, running, 1)
	for i, step := range []struct {
		name    string
		off, on func()
	}{
		{"GitHub", func() { h.installation("suspend", acme) }, func() { h.installation("unsuspend", acme) }},
		{"an administrator", func() { h.pause("acme", true) }, func() { h.pause("acme", false) }},
		{"uninstalled", func() { h.installation("deleted", acme) }, func() {
			acme := acme
			acme.InstallationID = 909 // GitHub uses no id again
			h.installation("created", acme)
		}},
	} {
		step.off()
		require.NotEqual(t, adminapi.AccountActive, h.account("acme").State, step.name)
		id := int64(10 + i) // of the uninstalled account: its last word, late
		h.record(job(fleet.JobEventQueued, id))
		poll := h.poll(t.Context(), one, h.pod("linux"))
		h.eventually("waiting", func() bool { return one.WaitingPolls() == 1 })
		require.Empty(t, h.claims(linuxPool("linux"), 3), step.name)
		require.Equal(t, fleet.JobQueued, h.jobState(id), "blocked, not lost")
		require.Equal(t, fleet.ClaimExecuting, h.claim(running).State, "what runs goes on")
		step.on()
		got := await.Receive(t, poll, "the poll is answered") // no timer fires here: it is woken
		require.NoError(t, got.err)
		require.Equal(t, dispatch.ReplyServe, got.answer.Reply, step.name)
		h.record(job(fleet.JobEventCompleted, id, by(got.answer.JIT.Name)))
	}
	h.record(job(fleet.JobEventCompleted, 1, by(answer.JIT.Name)))
	require.Equal(t, fleet.ClaimSpent, h.claim(running).State)

	h.pause("acme", true)
	h.record(job(fleet.JobEventQueued, 2, func(ev *dispatch.JobEvent) { ev.Account.InstallationID = 909 }))
	again := acme
	again.InstallationID = 909
	h.installation("suspend", again)
	poll := h.poll(t.Context(), two, h.pod("linux"))
	h.pause("acme", false)
	require.Empty(t, h.claims(linuxPool("linux"), 1), "GitHub has it suspended still")
	h.pause("acme", true)
	h.installation("unsuspend", again)
	require.Empty(t, h.claims(linuxPool("linux"), 1), "an administrator has it suspended still")
	h.pause("acme", false)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, poll, "the poll is answered").answer.Reply, "any replica serves it at once")
}

// CLAIM-5: a batch that read the lane before the account was suspended claims nothing after.
func TestSuspend_CLAIM5_NoBatchClaimsBesideIt(t *testing.T) {
	h := newHarness(t)
	for round := range 20 {
		first := int64(round*10 + 1)
		for id := first; id < first+8; id++ {
			h.queue(id)
		}
		var wg sync.WaitGroup
		for range 4 {
			b := h.batchOf(linuxPool("linux"), dispatch.LabelKey([]string{"linux"}), 2)
			wg.Go(func() { _, _ = h.store.ClaimBatch(context.Background(), b) })
		}
		_, err := h.store.Pause(t.Context(), change("acme"), true)
		require.NoError(t, err)
		before := h.account("acme").Budgets[0].Usage.Jobs
		await.Return(t, wg.Wait, "the concurrent calls return")
		require.Equal(t, before, h.account("acme").Budgets[0].Usage.Jobs, "nothing is claimed once the suspension has been committed")
		h.pause("acme", false)
		for _, claim := range h.claims(linuxPool("linux"), 16) {
			h.finish(claim)
		}
		ledgertest.Exec(t, h.url, `UPDATE runner_claims SET state = 'spent', ended_at = now() WHERE state = 'claimed'`)
		ledgertest.Exec(t, h.url, `UPDATE workflow_jobs SET state = 'completed', completed_at = now() WHERE state <> 'completed'`)
	}
}

// A back-off that failed mints earned while the installation was suspended does not outlive the suspension (CLAIM-11).
func TestSuspend_CLAIM11_BackOffEndsWithIt(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrForbidden })
	h.queue(1)
	poll := h.poll(t.Context(), d, h.pod("linux"))
	require.Equal(t, dispatch.ReplyEmpty, await.Receive(t, poll, "the poll is answered").answer.Reply, "refused")
	h.installation("suspend", acme)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = nil })
	poll = h.poll(t.Context(), d, h.pod("linux"))
	h.installation("unsuspend", acme)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, poll, "the poll is answered").answer.Reply, "at once, without the time of the back-off")
}

// GitHub's messages come late, twice and in any order; an installation that has ended stays ended.
func TestInstallation_EndedStaysEnded(t *testing.T) {
	h := newHarness(t)
	h.installation("deleted", acme)
	for _, late := range []func(){
		func() { h.installation("created", acme) },
		func() { h.installation("unsuspend", acme) },
		func() { h.queue(1) },
	} {
		late()
		require.Equal(t, adminapi.AccountUninstalled, h.account("acme").State)
	}
	require.Empty(t, h.claims(linuxPool("linux"), 1))
	again := acme
	again.InstallationID = 202
	h.installation("created", again)
	h.installation("deleted", acme) // late, of the former one
	require.Len(t, h.claims(linuxPool("linux"), 1), 1, "the job of before goes on")
	stranger := dispatch.Account{ID: 77, Login: "late", InstallationID: 707}
	h.installation("deleted", stranger)
	h.record(job(fleet.JobEventQueued, 2, from(stranger)))
	require.Equal(t, adminapi.AccountUninstalled, h.account("late").State)
	require.Equal(t, fleet.JobQueued, h.jobState(2))
}

// A new permission that is accepted, or a repeated "created", does not end a suspension: the event says what its
// installation is.
func TestInstallation_EventsThatTellOfASuspendedOne(t *testing.T) {
	h := newHarness(t)
	h.installation("suspend", acme)
	_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"),
		dispatch.Installation{Action: "new_permissions_accepted", Account: acme, Suspended: true})
	require.NoError(t, err)
	require.True(t, h.account("acme").SuspendedByGitHub)
}

// A list of GitHub's makes up for lost messages: suspended, resumed, uninstalled (on the second list), and installed again.
func TestSyncInstallations_LostMessages(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	beta := dispatch.Account{ID: 2, Login: "beta", User: true, InstallationID: 102}
	h.install(beta)
	clock := time.Now().Add(time.Hour)
	sync := func(list ...dispatch.Installation) dispatch.InstallationSync {
		clock = clock.Add(time.Minute)
		did, err := h.store.SyncInstallations(t.Context(), clock, clock, list)
		require.NoError(t, err)
		return did
	}
	here := func(a dispatch.Account) dispatch.Installation { return dispatch.Installation{Account: a} }
	suspended := dispatch.Installation{Account: acme, Suspended: true}
	require.Zero(t, sync(here(acme), here(beta)), "all is well")
	require.Equal(t, dispatch.InstallationSync{Corrected: 1}, sync(suspended, here(beta)))
	require.True(t, h.account("acme").SuspendedByGitHub)
	h.queue(1)
	poll := h.poll(t.Context(), d, h.pod("linux"))
	require.Equal(t, dispatch.InstallationSync{Corrected: 1}, sync(here(acme), here(beta)))
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, poll, "the poll is answered").answer.Reply, "its job goes on at once")

	require.Zero(t, sync(), "an empty list says nothing")
	require.Zero(t, sync(), "however often")
	require.Equal(t, dispatch.InstallationSync{Missing: 1}, sync(here(acme)))
	require.Zero(t, sync(here(acme), here(beta)), "it was an accident")
	require.Equal(t, dispatch.InstallationSync{Missing: 1}, sync(here(acme)))
	require.Equal(t, adminapi.AccountActive, h.account("beta").State)
	require.Equal(t, dispatch.InstallationSync{Removed: 1}, sync(here(acme)))
	require.Equal(t, adminapi.AccountUninstalled, h.account("beta").State)
	beta.InstallationID, beta.Login = 103, "gamma"
	require.Equal(t, dispatch.InstallationSync{Corrected: 1}, sync(here(acme), here(beta)))
	require.Equal(t, adminapi.AccountActive, h.account("gamma").State)
	require.EqualValues(t, 103, h.account("gamma").InstallationID)

	// An event after the start of the list is newer than the list.
	h.installation("suspend", acme)
	did, err := h.store.SyncInstallations(t.Context(), time.Now().Add(-time.Minute), time.Now(), []dispatch.Installation{here(acme), here(beta)})
	require.NoError(t, err)
	require.Zero(t, did)
	require.True(t, h.account("acme").SuspendedByGitHub)
	h.install(dispatch.Account{ID: 3, Login: "delta", InstallationID: 104})
	for range 2 {
		did, err = h.store.SyncInstallations(t.Context(), time.Now().Add(-time.Minute), time.Now(), []dispatch.Installation{here(acme), here(beta)})
		require.NoError(t, err)
		require.Zero(t, did, "it was installed after the list was begun")
	}
}

// Repositories that are removed from the installation wait, and block no other; added again, they continue at
// once.
func TestInstallation_RepositoriesTakenWait(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	inRepo := func(name string) func(*dispatch.JobEvent) {
		return func(ev *dispatch.JobEvent) { ev.Repository = name }
	}
	tell := func(action string) {
		_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation_repositories"),
			dispatch.Installation{Action: action, Account: acme, Repositories: []string{"acme/gone"}})
		require.NoError(t, err)
	}
	h.record(job(fleet.JobEventQueued, 1, inRepo("acme/gone")))
	tell(dispatch.RepositoriesRemoved)
	h.record(job(fleet.JobEventQueued, 2, inRepo("acme/gone")))
	h.record(job(fleet.JobEventQueued, 3, inRepo("acme/app")))
	claims := h.claims(linuxPool("linux"), 5)
	require.Len(t, claims, 1)
	require.EqualValues(t, 3, claims[0].JobID)
	require.EqualValues(t, 2, h.account("acme").Blocked)
	poll := h.poll(t.Context(), d, h.pod("linux"))
	tell(dispatch.RepositoriesAdded)
	require.Equal(t, dispatch.ReplyServe, await.Receive(t, poll, "the poll is answered").answer.Reply)
	require.Zero(t, h.account("acme").Blocked)
	require.Len(t, h.claims(linuxPool("linux"), 5), 1)
}

// CLAIM-5: a changed limit holds at once at every replica; lowering it ends nothing.
func TestLimits_CLAIM5_ChangesHoldAtOnce(t *testing.T) {
	h := newHarness(t)
	one, two := h.replica(), h.replica()
	set := func(jobs int64) adminapi.Account {
		a, err := h.store.ChangeLimits(t.Context(), change("ACME"), map[string]adminapi.LimitsChange{"linux": {Jobs: &jobs}})
		require.NoError(t, err)
		return a
	}
	set(2)
	h.queue(1, 2, 3, 4)
	first := h.claims(linuxPool("linux"), 4)
	require.Len(t, first, 2)
	polls := []<-chan polled{h.poll(t.Context(), one, h.pod("linux")), h.poll(t.Context(), two, h.pod("linux"))}
	h.eventually("parked", func() bool { return one.WaitingPolls() == 1 && two.WaitingPolls() == 1 })
	after := set(1)
	require.EqualValues(t, 2, after.Budgets[0].Usage.Jobs, "what runs goes on")
	require.EqualValues(t, 1, after.Budgets[0].Limits.Jobs)
	h.finish(first[0])
	require.Empty(t, h.claims(linuxPool("linux"), 1), "still no room")
	set(3)
	for _, p := range polls {
		require.Equal(t, dispatch.ReplyServe, await.Receive(t, p, "the poll is answered").answer.Reply)
	}
	require.EqualValues(t, 3, h.account("acme").Budgets[0].Usage.Jobs)
	require.EqualValues(t, 64*1024, h.account("acme").Budgets[0].Limits.MemoryMB, "what was not named stays")
}

func TestLimits_DefaultsOfNewAccounts(t *testing.T) {
	h := newHarness(t)
	h.store.UseDefaultLimits(map[fleet.Platform]fleet.Limits{fleet.Linux: {Jobs: 7, MilliCPU: 1, MemoryMB: 2, JobsPerRepository: 3}})
	h.install(dispatch.Account{ID: 9, Login: "new", InstallationID: 909})
	got := h.account("new").Budgets
	require.Equal(t, adminapi.Limits{Jobs: 7, MilliCPU: 1, MemoryMB: 2, JobsPerRepository: 3}, got[0].Limits)
	require.EqualValues(t, 2, got[1].Limits.Jobs, "macOS has the product's own")
	require.EqualValues(t, 40, h.account("acme").Budgets[0].Limits.Jobs, "an account that is known keeps what it has")
}

// CLAIM-4: what a deleted account had queued ends for good; nothing live is deleted; purging leaves its name nowhere but in
// the audit log.
func TestDelete_CLAIM4_OnlyWhatIsNotLive(t *testing.T) {
	h := newHarness(t)
	h.queue(1, 2, 3)
	claim := h.claims(linuxPool("linux"), 1)[0]
	conflict := func(says string) {
		t.Helper()
		var err *admin.ConflictError
		require.ErrorAs(t, h.store.DeleteAccount(t.Context(), change("acme"), true), &err)
		require.Contains(t, err.Sentence, says)
	}
	conflict("the App is still installed at acme")
	h.installation("deleted", acme)
	conflict("1 jobs of acme are still running")
	h.finish(claim)
	require.NoError(t, h.store.DeleteAccount(t.Context(), change("acme"), false))
	require.NoError(t, h.store.DeleteAccount(t.Context(), change("acme"), false), "twice is once")
	require.Equal(t, adminapi.AccountDeleted, h.account("acme").State)
	require.Equal(t, fleet.JobStale, h.jobState(2))
	h.queue(2) // redelivered late
	require.Equal(t, fleet.JobStale, h.jobState(2))
	require.Equal(t, fleet.JobCompleted, h.jobState(1), "history stays")
	accounts, _, err := h.store.Accounts(t.Context(), admin.AccountQuery{Most: 10})
	require.NoError(t, err)
	require.Empty(t, accounts)

	h.pause("acme", true)
	again := acme
	again.InstallationID = 303
	h.installation("created", again)
	require.Equal(t, adminapi.AccountSuspended, h.account("acme").State, "an administrator's suspension outlives a deletion")
	require.EqualValues(t, 40, h.account("acme").Budgets[0].Limits.Jobs, "back, with the default limits")
	h.installation("deleted", again)

	h.record(job(fleet.JobEventStarted, 50, by("a runner of somebody else's"), func(ev *dispatch.JobEvent) { ev.Account = again }))
	require.NoError(t, h.store.DeleteAccount(t.Context(), change("acme"), true))
	h.record(job(fleet.JobEventCompleted, 50, by("a runner of somebody else's"), func(ev *dispatch.JobEvent) { ev.Account = again }))
	require.Equal(t, fleet.JobAbsent, h.jobState(50), "what ran elsewhere is not brought back by its end")
	_, err = h.store.Account(t.Context(), "acme")
	require.ErrorIs(t, err, admin.ErrNotFound)
	require.Equal(t, fleet.JobAbsent, h.jobState(1))
	h.queue(1)
	require.Equal(t, fleet.JobAbsent, h.jobState(1), "its tombstone stays")
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT (SELECT count(*) FROM runner_sessions) + (SELECT count(*) FROM runner_claims WHERE account_id = 1)`))
	require.EqualValues(t, 1, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_claims WHERE pod_uid = $1`, claim.PodUID), "EXCL-1: the row of a pod that may exist stays")
}

// CLAIM-5: a deletion and a batch exclude each other: no claim of an account is made beside its end.
func TestDelete_CLAIM5_NoBatchClaimsBesideIt(t *testing.T) {
	h := newHarness(t)
	for round := range 15 {
		a := dispatch.Account{ID: int64(100 + round), Login: fmt.Sprintf("org-%d", round), InstallationID: int64(1000 + round)}
		h.install(a)
		h.record(job(fleet.JobEventQueued, int64(5000+round), from(a)))
		// Uninstalled by hand, without what would park the lane: only the locks stand between the two.
		var wg sync.WaitGroup
		var result dispatch.BatchResult
		b := h.batchOf(linuxPool("linux"), dispatch.LabelKey([]string{"linux"}), 1)
		wg.Go(func() { result, _ = h.store.ClaimBatch(context.Background(), b) })
		ledgertest.Exec(t, h.url, `UPDATE accounts SET installation_id = NULL WHERE id = $1`, a.ID)
		err := h.store.DeleteAccount(t.Context(), change(a.Login), false)
		await.Return(t, wg.Wait, "the concurrent calls return")
		if len(result.Claims) == 1 {
			require.Error(t, err, "what is live is not deleted")
			ledgertest.Exec(t, h.url, `UPDATE runner_claims SET state = 'spent', ended_at = now() WHERE state = 'claimed'`)
		} else {
			require.NoError(t, err)
			require.Equal(t, fleet.JobStale, h.jobState(int64(5000+round)))
		}
	}
}

// Every change is in the audit log with what was and what is, and its author; what failed, or changed nothing,
// is not.
func TestAudit_InTheChangesOwnTransaction(t *testing.T) {
	h := newHarness(t)
	jobs, version := int64(5), h.account("acme").Version
	limits := map[string]adminapi.LimitsChange{"linux": {Jobs: &jobs}}
	c := change("acme")
	c.Version = version
	_, err := h.store.ChangeLimits(t.Context(), c, limits)
	require.NoError(t, err)
	var stale *admin.VersionError
	_, err = h.store.ChangeLimits(t.Context(), c, limits)
	require.ErrorAs(t, err, &stale, "another administrator was first")
	_, err = h.store.ChangeLimits(t.Context(), change("acme"), limits)
	require.NoError(t, err, "nothing to change")
	h.pause("acme", true)
	h.pause("acme", true)
	events, err := h.store.Audit(t.Context(), admin.AuditQuery{Account: "Acme", Most: 10})
	require.NoError(t, err)
	require.Len(t, events, 3)
	require.Equal(t, adminapi.ActionSuspend, events[0].Action)
	require.JSONEq(t, `{"suspendedByAdministrator":true,"suspensionReason":"a test"}`, string(events[0].After))
	require.Equal(t, "ada", events[1].Actor)
	require.Equal(t, "JTI=1", events[1].Credential)
	require.JSONEq(t, `{"linux":{"jobs":40,"milliCpu":32000,"memoryMb":65536,"jobsPerRepository":0}}`, string(events[1].Before))
	require.JSONEq(t, `{"linux":{"jobs":5,"milliCpu":32000,"memoryMb":65536,"jobsPerRepository":0}}`, string(events[1].After))
	require.Equal(t, adminapi.ActorGitHub, events[2].Actor)
	require.Equal(t, adminapi.ActionInstall, events[2].Action)
	page, err := h.store.Audit(t.Context(), admin.AuditQuery{Before: events[1].ID, Most: 10})
	require.NoError(t, err)
	require.Equal(t, events[2:], page)
}

// A rename leaves one login with two accounts for a while: neither is guessed.
func TestAccount_LoginOfTwo(t *testing.T) {
	h := newHarness(t)
	h.install(dispatch.Account{ID: 9, Login: "ACME", InstallationID: 909})
	var conflict *admin.ConflictError
	_, err := h.store.Account(t.Context(), "acme")
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "ACME", h.account("@9").Login)
	first, next, err := h.store.Accounts(t.Context(), admin.AccountQuery{Most: 1})
	require.NoError(t, err)
	second, _, err := h.store.Accounts(t.Context(), admin.AccountQuery{Most: 1, After: next})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 9}, []int64{first[0].ID, second[0].ID})
}
