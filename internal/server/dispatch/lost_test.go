package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

func (h *harness) lost(d *dispatch.Dispatcher, pods ...dispatch.Pod) []runnerapi.RetireAnswer {
	h.t.Helper()
	answers, err := d.RetireLost(h.t.Context(), pods)
	require.NoError(h.t, err)
	require.Len(h.t, answers, len(pods))
	for i, pod := range pods {
		require.Equal(h.t, pod.UID, answers[i].UID)
	}
	return answers
}

func (h *harness) running() int64 {
	return ledgertest.Int(h.t, h.url, `SELECT coalesce(sum(running), 0)::bigint FROM job_lanes`)
}

// POOL-7: the node of a minted runner is gone. GitHub removes its registration, so its work is over: the job goes back to
// the queue and to the next runner, and the account has its budget back.
func TestRetireLost_POOL7_MintedRunnerIsReleasedByGitHubsProof(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	h.served(d, pod)
	require.EqualValues(t, 1, h.running())
	before := h.claim(pod)

	answer := h.lost(d, pod)[0]
	require.Equal(t, runnerapi.Granted, answer.Verdict)
	require.Equal(t, dispatch.ProofRegistrationsGone, answer.Proof)
	require.Equal(t, []string{before.RunnerName}, h.forge.Removed())
	require.Empty(t, h.forge.Alive())
	claim := h.claim(pod)
	require.Equal(t, fleet.ClaimSpent, claim.State)
	require.Equal(t, answer.Proof, claim.Proof, "the ledger keeps it")
	require.Greater(t, claim.Generation, before.Generation)
	require.Equal(t, fleet.JobQueued, h.jobState(1))
	require.Zero(t, h.running())
	require.EqualValues(t, 1, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE state = 'gone'`))

	require.Equal(t, answer, h.lost(d, pod)[0], "asked twice, answered twice, from the ledger")
	require.Len(t, h.forge.Removed(), 1)
	asked, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyGone, asked.Reply, "EXCL-5: spent")
	next := h.pod("linux")
	h.served(d, next)
	require.EqualValues(t, 1, h.claim(next).JobID)
}

// EXCL-6: 422 keeps a claim, and so does everything that proves nothing.
func TestRetireLost_EXCL6_OnlyAProofReleases(t *testing.T) {
	cases := map[string]struct {
		change func(*dispatchtest.GitHub)
		want   runnerapi.Verdict
	}{
		"422: it works":                 {func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrRunnerBusy }, runnerapi.Busy},
		"5xx":                           {func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrUncertain }, runnerapi.Unknown},
		"rate limited":                  {func(g *dispatchtest.GitHub) { g.RemoveErr = &fleet.RateLimitedError{} }, runnerapi.Unknown},
		"404, scope is read":            {func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrNotFound }, runnerapi.Granted},
		"404, scope cannot be read":     {func(g *dispatchtest.GitHub) { g.RemoveErr, g.Unread = fleet.ErrNotFound, fleet.ErrForbidden }, runnerapi.Unknown},
		"403 and still listed":          {func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrForbidden }, runnerapi.Unknown},
		"403 and its scope is not read": {func(g *dispatchtest.GitHub) { g.RemoveErr, g.Unread = fleet.ErrForbidden, fleet.ErrUncertain }, runnerapi.Unknown},
		"removed":                       {func(*dispatchtest.GitHub) {}, runnerapi.Granted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.replica()
			h.queue(1)
			pod := h.pod("linux")
			h.served(d, pod)
			h.forge.Set(c.change)
			answer := h.lost(d, pod)[0]
			require.Equal(t, c.want, answer.Verdict)
			if c.want == runnerapi.Granted {
				require.NotEmpty(t, answer.Proof)
				require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
				return
			}
			require.Empty(t, answer.Proof)
			claim := h.claim(pod)
			require.Equal(t, fleet.ClaimMinted, claim.State)
			require.True(t, claim.LeaseUntil.IsZero(), "and nothing stands in the way of the next question")
			require.Equal(t, fleet.JobMinted, h.jobState(1))
			require.EqualValues(t, 1, h.running())

			h.forge.Set(func(g *dispatchtest.GitHub) { g.RemoveErr, g.Unread = nil, nil })
			require.Equal(t, runnerapi.Granted, h.lost(d, pod)[0].Verdict, "RECV-5: no trap")
		})
	}
}

// POOL-7: a job that ran on the vanished node is GitHub's to fail; only the claim ends, once GitHub removes the runner.
func TestRetireLost_POOL7_ExecutingJobIsLeftToGitHub(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	answer := h.started(d, pod, 1)
	busy := h.lost(d, pod)[0]
	require.Equal(t, runnerapi.Busy, busy.Verdict, "GitHub still waits for it")
	require.Equal(t, "acme", busy.Owner)
	require.Equal(t, fleet.ClaimExecuting, h.claim(pod).State)

	h.forge.Set(func(g *dispatchtest.GitHub) { delete(g.Runners, answer.JIT.Name) }) // GitHub has given it up
	require.Equal(t, runnerapi.Granted, h.lost(d, pod)[0].Verdict)
	require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
	require.Equal(t, fleet.JobExecuting, h.jobState(1))
	require.Zero(t, h.running())
	h.record(job(fleet.JobEventCompleted, 1, by(answer.JIT.Name), func(ev *dispatch.JobEvent) { ev.Conclusion = "failure" }))
	require.Equal(t, fleet.JobCompleted, h.jobState(1))
	require.Zero(t, h.running(), "freed once")
}

// The loss of a job's node is recorded, unless the job's end was known before.
func TestRetireLost_NotesWhichJobsLostTheirNodes(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1, 2, 3)
	died, ended, warm := h.pod("linux"), h.pod("linux"), h.pod("linux")
	one, two := h.started(d, died, 1), h.started(d, ended, 2)
	h.served(d, warm)
	failed := func(id int64, runner string) {
		ev := job(fleet.JobEventCompleted, id, by(runner))
		ev.Conclusion, ev.CompletedAt = "failure", time.Now()
		h.record(ev)
	}
	failed(2, two.JIT.Name)
	h.lost(d, died, ended, warm)
	failed(1, one.JIT.Name)
	lost, err := h.store.JobsLostWithTheirPods(t.Context(), time.Now().Add(-time.Hour), time.Now(), 10)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.EqualValues(t, 1, lost[0].ID)
	require.Equal(t, died.Name, lost[0].PodName)
}

func TestRetireLost_WithoutALiveClaimSendsNoRequest(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.forge.Set(func(g *dispatchtest.GitHub) { g.RemoveErr, g.Unread = fleet.ErrUncertain, fleet.ErrUncertain })
	idle := h.pod("linux")
	answer := h.lost(d, idle)[0]
	require.Equal(t, runnerapi.Granted, answer.Verdict)
	require.Empty(t, answer.Proof, "EXCL-4: a row that may have been lost proves nothing")
	require.Equal(t, fleet.ClaimRetired, h.claim(idle).State)

	h.queue(1)
	done := h.pod("linux")
	runner := h.started(d, done, 1).JIT.Name
	h.record(job(fleet.JobEventCompleted, 1, by(runner)))
	answer = h.lost(d, done)[0]
	require.Equal(t, runnerapi.Granted, answer.Verdict)
	require.Contains(t, answer.Proof, "completed its job")
	plain, err := d.Retire(t.Context(), []dispatch.Pod{done})
	require.NoError(t, err)
	require.Empty(t, plain[0].Proof, "a pod that can be asked has its own say")
}

// CLAIM-15: a claim that a replica is minting is not touched, and one that changes while GitHub is asked is not released by
// what was found out about its former state.
func TestRetireLost_CLAIM15_StaleGenerationsReleaseNothing(t *testing.T) {
	t.Run("a replica is minting", func(t *testing.T) {
		h := newHarness(t)
		h.queue(1)
		pod := h.pod("linux")
		_, err := h.store.ClaimBatch(t.Context(), h.batch(pod))
		require.NoError(t, err)
		before := h.claim(pod)
		require.Equal(t, runnerapi.Unknown, h.lost(h.replica(), pod)[0].Verdict)
		require.Equal(t, before, h.claim(pod))
	})
	t.Run("taken over meanwhile", func(t *testing.T) {
		h := newHarness(t)
		d := h.replica()
		h.queue(1)
		pod := h.pod("linux")
		h.forge.Set(func(g *dispatchtest.GitHub) { g.OnMint = func(string) error { return fleet.ErrUncertain } })
		_, err := d.Poll(await.Context(t), pod, 0)
		require.NoError(t, err)
		h.forge.Set(func(g *dispatchtest.GitHub) {
			g.OnMint = nil
			g.OnFind = func(context.Context, string) { // another server's clock is ahead, and the lease has expired for it
				ledgertest.Exec(t, h.url, `UPDATE runner_claims SET generation = generation + 1`)
			}
		})
		require.Equal(t, runnerapi.Unknown, h.lost(d, pod)[0].Verdict)
		require.Equal(t, fleet.ClaimClaimed, h.claim(pod).State)
		require.Equal(t, fleet.JobClaimed, h.jobState(1))
	})
	t.Run("completed meanwhile", func(t *testing.T) {
		h := newHarness(t)
		d := h.replica()
		h.queue(1)
		pod := h.pod("linux")
		h.forge.Set(func(g *dispatchtest.GitHub) { g.OnMint = func(string) error { return fleet.ErrUncertain } })
		_, err := d.Poll(await.Context(t), pod, 0)
		require.NoError(t, err)
		h.forge.Set(func(g *dispatchtest.GitHub) {
			g.OnMint = nil
			g.OnFind = func(_ context.Context, name string) { h.record(job(fleet.JobEventCompleted, 1, by(name))) }
		})
		answer := h.lost(d, pod)[0]
		require.Equal(t, runnerapi.Granted, answer.Verdict)
		require.Contains(t, answer.Proof, "completed its job", "the row's own word, not ours")
		require.Zero(t, h.running(), "freed once")
	})
}

// EXCL-6: however it came about, a claim with a registration that may be alive is not released.
func TestStore_EXCL6_ReleaseNeedsEveryRegistrationGone(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	h.queue(1)
	pod := h.pod("linux")
	h.served(d, pod)
	claim := h.claim(pod)
	released, err := h.store.Release(t.Context(), pod.UID, claim.Generation, "because", time.Now())
	require.NoError(t, err)
	require.False(t, released)
	require.Equal(t, fleet.ClaimMinted, h.claim(pod).State)
	require.NoError(t, h.store.RegistrationGone(t.Context(), claim.RunnerName, time.Now()))
	released, err = h.store.Release(t.Context(), pod.UID, claim.Generation-1, "because", time.Now())
	require.NoError(t, err)
	require.False(t, released, "CLAIM-15")
	released, err = h.store.Release(t.Context(), pod.UID, claim.Generation, "because", time.Now())
	require.NoError(t, err)
	require.True(t, released)
	require.Zero(t, h.running())
}

// A question about many lost pods examines a few at once, and others the next time.
func TestRetireLost_ExaminesAFewAtATimeAndAllInTheEnd(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	const pods = 20
	lost := make([]dispatch.Pod, pods)
	for i := range lost {
		h.queue(int64(i + 1))
		lost[i] = h.pod("linux")
		h.served(d, lost[i])
	}
	h.forge.Set(func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrRunnerBusy })
	examined := map[string]bool{}
	for range 3 {
		busy := 0
		for _, answer := range h.lost(d, lost...) {
			if answer.Verdict == runnerapi.Busy {
				busy++
				examined[answer.UID] = true
			} else {
				require.Equal(t, runnerapi.Unknown, answer.Verdict)
			}
		}
		require.Equal(t, 8, busy)
	}
	require.Len(t, examined, pods)
}
