package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// listed is a replica that reads GitHub's lists, as the product's do.
func (h *harness) listed(change ...func(*dispatch.Options)) *dispatch.Dispatcher {
	h.t.Helper()
	reader, err := roster.New(roster.Options{Forge: h.forge, Ledger: h.store})
	require.NoError(h.t, err)
	return h.replica(append(change, func(o *dispatch.Options) { o.Roster = reader })...)
}

// registered adds a runner for the pod that no row knows, and returns its name.
func (h *harness) registered(pod dispatch.Pod, busy bool) string {
	h.t.Helper()
	name, err := runnerpod.RunnerName(pod.UID, time.Now().UnixMicro())
	require.NoError(h.t, err)
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.NextID++
		g.Runners[name] = &dispatchtest.Runner{ID: g.NextID, Online: busy, Busy: busy}
	})
	return name
}

// EXCL-4, POOL-7: a row that says no more than that the fleet took the pod may stand where another one was lost. It is proven
// over when GitHub lists nothing of the pod, and what it lists is removed first.
func TestRetireLost_EXCL4_ARowWithoutProofNeedsGitHubsList(t *testing.T) {
	cases := map[string]struct {
		prepare func(h *harness, pod dispatch.Pod)
		verdict runnerapi.Verdict
		proof   bool
		alive   int
	}{
		"nothing is listed": {func(*harness, dispatch.Pod) {}, runnerapi.Granted, true, 0},
		"an idle one is listed": {func(h *harness, pod dispatch.Pod) {
			h.registered(pod, false)
			h.registered(pod, false)
		}, runnerapi.Granted, true, 0},
		"it is another pod's": {func(h *harness, _ dispatch.Pod) { h.registered(h.pod("linux"), true) }, runnerapi.Granted, true, 1},
		"the list is torn":    {func(h *harness, _ dispatch.Pod) { h.forge.Torn = true }, runnerapi.Granted, false, 0},
		"the list is torn, and shows an idle one": {func(h *harness, pod dispatch.Pod) {
			h.registered(pod, false)
			h.forge.Torn = true
		}, runnerapi.Granted, false, 0},
		"the list cannot be read": {func(h *harness, _ dispatch.Pod) { h.forge.Unread = fleet.ErrForbidden }, runnerapi.Granted, false, 0},
		"an idle one cannot be removed": {func(h *harness, pod dispatch.Pod) {
			h.registered(pod, false)
			h.forge.RemoveErr = fleet.ErrUncertain
		}, runnerapi.Unknown, false, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.listed()
			pod := h.pod("linux")
			c.prepare(h, pod)
			answer := h.lost(d, pod)[0]
			require.Equal(t, c.verdict, answer.Verdict)
			require.Len(t, h.forge.Alive(), c.alive)
			if !c.proof {
				require.Empty(t, answer.Proof)
				return
			}
			require.Equal(t, dispatch.ProofUnregistered, answer.Proof)
			require.Equal(t, answer.Proof, h.claim(pod).Proof, "the ledger keeps it")
			require.Equal(t, answer, h.lost(h.replica(), pod)[0], "for later callers")
		})
	}
}

// CLAIM-13: a runner that the list shows as busy, or that GitHub refuses to remove, is busy. It has a claim again, charged
// to the account that it is registered with, and its job is bound when GitHub names it.
func TestRetireLost_CLAIM13_ABusyRunnerWithoutAClaimIsAdopted(t *testing.T) {
	for name, shown := range map[string]bool{"the list says so": true, "the flag lags, the removal is refused": false} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := h.listed()
			pod := h.pod("linux")
			runner := h.registered(pod, shown)
			if !shown {
				h.forge.Set(func(g *dispatchtest.GitHub) { g.RemoveErr = fleet.ErrRunnerBusy })
			}
			ledgertest.Exec(t, h.url, `DELETE FROM accounts`) // this ledger was never notified of it
			answer := h.lost(d, pod)[0]
			require.Equal(t, runnerapi.Busy, answer.Verdict)
			require.Equal(t, "acme", answer.Owner)
			claim := h.claim(pod)
			require.Equal(t, fleet.ClaimExecuting, claim.State)
			require.Zero(t, claim.JobID)
			require.Equal(t, acme, claim.Account)
			require.EqualValues(t, 1000, ledgertest.Int(t, h.url, `SELECT milli_cpu FROM runner_claims`))
			require.EqualValues(t, 1, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_sessions WHERE ended_at IS NULL`))
			require.EqualValues(t, 1, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_registrations WHERE state = 'alive'`))
			require.Equal(t, runnerapi.Busy, h.lost(d, pod)[0].Verdict)

			h.record(job(fleet.JobEventStarted, 7, by(runner)))
			require.EqualValues(t, 7, h.claim(pod).JobID)
			h.record(job(fleet.JobEventCompleted, 7, by(runner)))
			require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
		})
	}
	t.Run("GitHub had named its job", func(t *testing.T) {
		h := newHarness(t)
		d := h.listed()
		pod := h.pod("linux")
		runner := h.registered(pod, true)
		h.record(job(fleet.JobEventStarted, 7, by(runner)))
		require.Equal(t, runnerapi.Busy, h.lost(d, pod)[0].Verdict)
		require.EqualValues(t, 7, h.claim(pod).JobID)
	})
	t.Run("completed without a word of its start", func(t *testing.T) {
		h := newHarness(t)
		d := h.listed()
		pod := h.pod("linux")
		runner := h.registered(pod, true)
		require.Equal(t, runnerapi.Busy, h.lost(d, pod)[0].Verdict)
		h.record(job(fleet.JobEventCompleted, 7, by(runner)))
		require.Equal(t, fleet.ClaimSpent, h.claim(pod).State)
	})
}

// POOL-7: a rack with 500 busy runners is gone. One reading of a list answers for all that GitHub has removed; those that it still lists
// are removed a bounded number at a time, and busy ones are kept without a request.
func TestRetireLost_POOL7_AWholeRackCostsNoRequestAPod(t *testing.T) {
	h := newHarness(t)
	d := h.listed(func(o *dispatch.Options) { o.ExamineTimeout = time.Minute }) // this test counts requests
	const rack, idle, busy = 500, 60, 20
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 1e9, MemoryMB: 1e9, Jobs: 1e6}))
	pods := make([]dispatch.Pod, rack)
	for i := range pods {
		h.queue(int64(i + 1))
		pods[i] = h.pod("linux")
	}
	for at := 0; at < rack; at += 50 {
		batch := h.batch(pods[at : at+50]...)
		result, err := h.store.ClaimBatch(t.Context(), batch)
		require.NoError(t, err)
		require.Len(t, result.Claims, 50)
		for i, claim := range result.Claims {
			won, err := h.store.RecordMint(t.Context(), claim.PodUID, claim.Generation, int64(at+i+1), time.Now())
			require.NoError(t, err)
			require.True(t, won)
			if n := at + i; n < idle+busy {
				h.forge.Set(func(g *dispatchtest.GitHub) {
					g.Runners[claim.RunnerName] = &dispatchtest.Runner{ID: int64(n + 1), Online: n < busy, Busy: n < busy}
				})
			}
		}
	}
	h.forge.Set(func(g *dispatchtest.GitHub) { g.NextID = 10_000 })
	granted, questions := 0, 0
	for granted < rack-busy {
		questions++
		require.Less(t, questions, 6, "granted %d", granted)
		before := h.forge.Requests()
		granted = 0
		for _, answer := range h.lost(d, pods...) {
			if answer.Verdict == runnerapi.Granted {
				require.NotEmpty(t, answer.Proof)
				granted++
			}
		}
		require.LessOrEqual(t, h.forge.Requests()-before, 24, "at most so many removals a question")
		require.GreaterOrEqual(t, granted, rack-busy-idle, "at the first question already")
	}
	require.Equal(t, idle, h.forge.Requests(), "one for each that had to be removed, none for any other")
	require.LessOrEqual(t, h.forge.Lists(), questions)
	require.Len(t, h.forge.Alive(), busy)
	require.EqualValues(t, busy, ledgertest.Int(t, h.url, `SELECT count(*) FROM runner_claims WHERE state = 'minted'`))
	require.EqualValues(t, rack-busy, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE state = 'queued'`))
}

// CLAIM-15, EXCL-6: a list that was read before the claim was taken proves nothing about what was minted since.
func TestRetireLost_CLAIM15_TheListIsReadAfterTheClaimIsTaken(t *testing.T) {
	h := newHarness(t)
	d := h.listed()
	h.queue(1, 2)
	first, second := h.pod("linux"), h.pod("linux")
	h.served(d, first)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Runners = map[string]*dispatchtest.Runner{} })
	require.Equal(t, runnerapi.Granted, h.lost(d, first)[0].Verdict)
	require.Equal(t, 1, h.forge.Lists())
	answer := h.started(d, second, 2)
	require.Equal(t, runnerapi.Busy, h.lost(d, second)[0].Verdict, "the list of before does not show it")
	require.Contains(t, h.forge.Alive(), answer.JIT.Name)
}
