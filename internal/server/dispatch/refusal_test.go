package dispatch_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// answered is GitHub's answer.
type answered struct {
	status  int
	meaning error
}

func (a answered) Error() string         { return fmt.Sprintf("GitHub answers %d", a.status) }
func (a answered) Unwrap() error         { return a.meaning }
func (a answered) GitHubStatus() int     { return a.status }
func (a answered) GitHubMessage() string { return "Resource not accessible by integration" }

var answersByStatus = []answered{
	{http.StatusBadRequest, fleet.ErrRejected}, {http.StatusForbidden, fleet.ErrForbidden}, {http.StatusNotFound, fleet.ErrNotFound},
	{http.StatusConflict, fleet.ErrNameTaken}, {http.StatusGone, fleet.ErrRejected}, {http.StatusUnprocessableEntity, fleet.ErrRejected},
}

// servedPod returns a pod whose poll was given a job. The clock advances between two requests: a claim that follows another of the same pod
// has a name of its own.
func (h *harness) servedPod(d *dispatch.Dispatcher, c *clock) dispatch.Pod {
	h.t.Helper()
	pod := h.pod("linux")
	for range 20 {
		c.pass(time.Microsecond)
		answer, err := d.Poll(await.Context(h.t), pod, 0)
		require.NoError(h.t, err)
		if answer.Reply == dispatch.ReplyServe {
			return pod
		}
	}
	h.t.Fatal("the pod was never served")
	return pod
}

// jobOf is the job that a registration is asked for.
func (h *harness) jobOf(runner string) int64 {
	return ledgertest.Int(h.t, h.url, `SELECT coalesce(max(job_id), 0) FROM runner_claims WHERE runner_name = '`+runner+`'`)
}

// refuse has GitHub refuse runners for these jobs until the result is called.
func (h *harness) refuse(err error, jobs ...int64) (accept func()) {
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.RefuseOf = func(req fleet.MintRequest) error {
			for _, id := range jobs {
				if h.jobOf(req.Name) == id {
					return err
				}
			}
			return nil
		}
	})
	return func() { h.forge.Set(func(g *dispatchtest.GitHub) { g.RefuseOf = nil }) }
}

// CLAIM-19: what GitHub refuses for one repository or job is set aside; every other job of the account is served without a
// wait. That holds for any status, for runners of the organization and of the repository, and wherever the refused job is
// in its lane.
func TestRefusal_CLAIM19_OnlyWhatItSpeaksOfWaits(t *testing.T) {
	for _, atRepository := range []bool{false, true} {
		for _, answer := range answersByStatus {
			for place, refused := range map[string]int64{"head": 1, "behind": 2} {
				t.Run(fmt.Sprintf("%d/%s/repository=%v", answer.status, place, atRepository), func(t *testing.T) {
					h, c := newHarness(t), newClock()
					pool := linuxPool("linux")
					pool.RepositoryScope = atRepository
					h.cluster.PutPool(pool)
					for id := int64(1); id <= 3; id++ {
						repository := "acme/good"
						if id == refused {
							repository = "acme/bad"
						}
						h.record(job(fleet.JobEventQueued, id, in(repository)))
					}
					accept := h.refuse(answer, refused)
					d := h.replica(at(c))
					h.knowsLabels(d)
					h.servedPod(d, c)
					h.servedPod(d, c)
					require.Equal(t, fleet.JobQueued, h.jobState(refused))
					require.Equal(t, 3, h.forge.Mints(), "the refused job was asked for once")
					backoff, _ := d.Backoff(acme)
					require.Zero(t, backoff, "the account does not wait")
					require.Equal(t, blocked(runnerapi.BlockedRefused, 1), h.asks(d, c)["linux"].Blocked)
					require.Contains(t, h.asks(d, c)["linux"].Refused, "acme/bad (status "+fmt.Sprint(answer.status)+": Resource not accessible by integration)")

					// It is retried automatically, and found to be over.
					accept()
					c.pass(time.Hour)
					_, err := d.RetryRefused(t.Context())
					require.NoError(t, err)
					h.servedPod(d, c)
					h.eventually("nothing is refused any more", func() bool { return ledgertest.Int(t, h.url, `SELECT count(*) FROM refusals`) == 0 })
				})
			}
		}
	}
}

// CLAIM-19: jobs of a repository that GitHub refuses are not tried one by one, and are unblocked together when one of them
// is served.
func TestRefusal_CLAIM19_ARepositoryIsTriedByOneJob(t *testing.T) {
	h, c := newHarness(t), newClock()
	pool := linuxPool("linux")
	pool.RepositoryScope = true
	h.cluster.PutPool(pool)
	for id := int64(1); id <= 20; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/bad")))
	}
	h.record(job(fleet.JobEventQueued, 21, in("acme/good")))
	var bad []int64
	for id := int64(1); id <= 20; id++ {
		bad = append(bad, id)
	}
	accept := h.refuse(answered{http.StatusForbidden, fleet.ErrForbidden}, bad...)
	d := h.replica(at(c))
	h.knowsLabels(d)
	h.servedPod(d, c)
	require.Equal(t, fleet.JobMinted, h.jobState(21))
	require.Equal(t, 2, h.forge.Mints())

	// One that arrives in between waits as well.
	h.record(job(fleet.JobEventQueued, 22, in("acme/bad")))
	for i := range 3 {
		c.pass(time.Hour)
		_, err := d.RetryRefused(t.Context())
		require.NoError(t, err)
		_, err = d.Poll(await.Context(t), h.pod("linux"), 0) // gets no job
		require.NoError(t, err)
		require.Equal(t, 3+i, h.forge.Mints(), "one attempt each time")
	}
	accept()
	c.pass(time.Hour)
	_, err := d.RetryRefused(t.Context())
	require.NoError(t, err)
	for range 3 {
		h.servedPod(d, c)
	}
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE held <> ''`))
}

// CLAIM-19, CLAIM-20: what was under way when jobs began to wait tells nothing new. However many runners it was, the jobs are tried again after
// the first wait.
func TestRefusal_CLAIM19_CLAIM20_WhatWasUnderWayCountsOnce(t *testing.T) {
	const all = 12
	waits := func(h *harness, c *clock, failures int64, longest time.Duration) {
		h.t.Helper()
		refusals, err := h.store.Refusals(h.t.Context(), 10)
		require.NoError(h.t, err)
		require.Len(h.t, refusals, 1)
		require.Equal(h.t, failures, refusals[0].Failures)
		require.Less(h.t, refusals[0].Next.Sub(c.now()), longest+time.Second)
	}
	prepare := func(t *testing.T) (*harness, *clock, *dispatch.Dispatcher) {
		h, c := newHarness(t), newClock()
		h.forge.Set(func(g *dispatchtest.GitHub) {
			g.Access = map[string]fleet.GroupAccess{"acme/closed": {Visibility: "selected", AllowsPublicRepositories: true}}
		})
		for id := int64(1); id <= all; id++ {
			h.record(job(fleet.JobEventQueued, id, in("acme/closed")))
		}
		d := h.replica(at(c))
		h.knowsLabels(d)
		return h, c, d
	}
	t.Run("registrations", func(t *testing.T) {
		h, c, d := prepare(t)
		var claims []dispatch.Claim
		for range all {
			claims = append(claims, h.claim(h.servedPod(d, c)))
		}
		pace := func(failures, standing int64) time.Duration {
			return dispatch.RefusalPace(dispatch.Refused, failures, standing, 1)
		}
		refused := dispatch.Refusal{AccountID: acme.ID, Repository: "acme/closed", Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux"}, Reason: dispatch.Refused}
		for _, claim := range claims {
			_, err := h.store.Refuse(t.Context(), claim, refused, pace, c.now())
			require.NoError(t, err)
		}
		waits(h, c, 1, 10*time.Second)
	})
	t.Run("idle runners", func(t *testing.T) {
		h, c, d := prepare(t)
		var claims []dispatch.Claim
		for range all {
			claims = append(claims, h.claim(h.servedPod(d, c)))
		}
		for _, claim := range claims {
			require.NoError(t, d.NotAssigned(t.Context(), claim))
			_, err := d.EndClaim(t.Context(), claim, false, time.Time{})
			require.NoError(t, err)
			require.NoError(t, h.store.PodStopped(t.Context(), claim.PodUID, c.now(), nil))
		}
		waits(h, c, 2, 5*time.Minute)

		// The one that is tried again counts.
		h.record(job(fleet.JobEventQueued, 100, in("acme/open")))
		h.servedPod(d, c) // meets the jobs, and sets them aside
		c.pass(6 * time.Minute)
		_, err := d.RetryRefused(t.Context())
		require.NoError(t, err)
		pod := h.servedPod(d, c)
		require.NoError(t, d.NotAssigned(t.Context(), h.claim(pod)))
		waits(h, c, 3, 10*time.Minute)
	})
}

// CLAIM-11, CLAIM-19: an answer about the credentials makes the whole account wait, and no job is set aside.
func TestRefusal_CLAIM19_CredentialsAreTheAccounts(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.queue(1, 2)
	accept := h.refuse(answered{http.StatusUnauthorized, fleet.ErrCredentials}, 1, 2)
	d := h.replica(at(c))
	h.knowsLabels(d)
	_, err := d.Poll(await.Context(t), h.pod("linux"), 0)
	require.NoError(t, err)
	backoff, _ := d.Backoff(acme)
	require.True(t, backoff.After(c.now()))
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE held <> ''`))
	h.eventually("it is told", func() bool {
		return ledgertest.Int(t, h.url, `SELECT count(*) FROM refusals WHERE repository = '' AND pool = '' AND status = 401`) == 1
	})
	accept()
	c.pass(time.Minute)
	h.servedPod(d, c)
	h.eventually("it is over", func() bool { return ledgertest.Int(t, h.url, `SELECT count(*) FROM refusals`) == 0 })
}

// CLAIM-19: an address of one repository at which GitHub fails says nothing of the account; those of two do.
func TestRefusal_CLAIM19_AFailingAddressIsOneRepositorys(t *testing.T) {
	h, c := newHarness(t), newClock()
	pool := linuxPool("linux")
	pool.RepositoryScope = true
	h.cluster.PutPool(pool)
	h.record(job(fleet.JobEventQueued, 1, in("acme/bad")))
	h.record(job(fleet.JobEventQueued, 2, in("acme/good")))
	h.record(job(fleet.JobEventQueued, 3, in("acme/bad")))
	h.refuse(answered{http.StatusBadGateway, fleet.ErrUncertain}, 1, 3)
	d := h.replica(at(c))
	h.knowsLabels(d)
	answer, err := d.Poll(await.Context(t), h.pod("linux"), 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyRetry, answer.Reply)
	h.servedPod(d, c)
	require.Equal(t, fleet.JobMinted, h.jobState(2))
	require.Equal(t, fleet.JobClaimed, h.jobState(1), "what became of it is found out by its own pod")
	require.Equal(t, fleet.JobQueued, h.jobState(3))
	require.Equal(t, 2, h.forge.Mints())

	h.record(job(fleet.JobEventQueued, 4, in("acme/worse")))
	h.record(job(fleet.JobEventQueued, 5, in("acme/worst")))
	h.refuse(answered{http.StatusBadGateway, fleet.ErrUncertain}, 4, 5)
	for range 2 {
		_, err = d.Poll(await.Context(t), h.pod("linux"), 0)
		require.NoError(t, err)
	}
	backoff, _ := d.Backoff(acme)
	require.True(t, backoff.After(c.now()))
}

// CLAIM-19: where GitHub refuses every request in a pool, the pool waits as well, and the account's jobs in others
// continue.
func TestRefusal_CLAIM19_ManyInARowAreThePools(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("plain"))
	var bad []int64
	for id := int64(1); id <= 8; id++ {
		h.record(job(fleet.JobEventQueued, id, in(fmt.Sprintf("acme/app-%d", id))))
		bad = append(bad, id)
	}
	h.record(job(fleet.JobEventQueued, 9, labelled("plain")))
	h.refuse(answered{http.StatusUnprocessableEntity, fleet.ErrRejected}, bad...)
	d := h.replica(at(c))
	h.knowsLabels(d)
	for range 5 {
		_, err := d.Poll(await.Context(t), h.pod("linux"), 0)
		require.NoError(t, err)
	}
	refusal, ok := d.PoolRefused(dispatch.PoolRef{Namespace: "runners", Name: "linux"}, acme.ID)
	require.True(t, ok)
	require.Equal(t, http.StatusUnprocessableEntity, refusal.Status)
	require.Equal(t, 5, h.forge.Mints())
	h.served(d, h.pod("plain"))
}

// CLAIM-20: after two runners that got no job of a repository, its jobs wait in that pool and do not count against the
// account's limits.
func TestNotAssigned_CLAIM20_TheRepositoryWaitsInThatPool(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.Access = map[string]fleet.GroupAccess{"acme/closed": {Visibility: "selected", AllowsPublicRepositories: true}}
	})
	for id := int64(1); id <= 3; id++ {
		h.record(job(fleet.JobEventQueued, id, in("acme/closed")))
	}
	d := h.replica(at(c))
	h.knowsLabels(d)
	unassigned := func() {
		pod := h.servedPod(d, c)
		claim := h.claim(pod)
		require.NoError(t, d.NotAssigned(t.Context(), claim))
		ending, err := d.EndClaim(t.Context(), claim, false, time.Time{})
		require.NoError(t, err)
		require.Equal(t, dispatch.EndedSpent, ending)
		require.NoError(t, h.store.PodStopped(t.Context(), pod.UID, c.now(), nil))
	}
	unassigned()
	require.Empty(t, h.asks(d, c)["linux"].Refused, "one may be chance")
	require.NoError(t, h.store.HastenRefusals(t.Context(), acme.ID, c.now()), "the account changes, as with each new repository")
	_, err := d.RetryRefused(t.Context())
	require.NoError(t, err)
	unassigned()
	h.record(job(fleet.JobEventQueued, 4, in("acme/open")))
	h.servedPod(d, c)
	require.Equal(t, fleet.JobMinted, h.jobState(4))
	asked := h.asks(d, c)["linux"]
	require.Equal(t, blocked(runnerapi.BlockedRefused, 3), asked.Blocked)
	require.Contains(t, asked.Refused, "GitHub gives runners no job of acme/closed (runner group 1 is open to selected repositories only, and acme/closed is none of them)")

	// The group is opened: one job is tried, and when it has started the others follow.
	c.pass(3 * time.Hour)
	_, err = d.RetryRefused(t.Context())
	require.NoError(t, err)
	h.started(d, h.pod("linux"), 1)
	require.EqualValues(t, 2, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE held <> ''`))
	c.pass(2 * time.Minute)
	_, err = d.RetryRefused(t.Context())
	require.NoError(t, err)
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM workflow_jobs WHERE held <> ''`))
	require.Zero(t, ledgertest.Int(t, h.url, `SELECT count(*) FROM refusals`))
}

// CLAIM-19: attempts come more and more rarely, and together ask no more of GitHub than one every two seconds, however many refusals stand.
func TestRefusalPace_CLAIM19(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reason := rapid.SampledFrom([]dispatch.RefusalReason{dispatch.Refused, dispatch.NotAssigned}).Draw(t, "reason")
		failures, standing := rapid.Int64Range(2, 1000).Draw(t, "failures"), rapid.Int64Range(0, 5000).Draw(t, "standing")
		full := func(failures int64) time.Duration { return dispatch.RefusalPace(reason, failures, standing, 1) }
		require.GreaterOrEqual(t, full(failures+1), full(failures))
		require.GreaterOrEqual(t, full(failures), time.Duration(standing)*2*time.Second)
		require.LessOrEqual(t, full(failures), max(time.Hour, time.Duration(standing)*2*time.Second))
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		require.GreaterOrEqual(t, dispatch.RefusalPace(reason, failures, standing, jitter), full(failures)/2)
	})
	require.Zero(t, dispatch.RefusalPace(dispatch.NotAssigned, 1, 0, 1))
	require.Equal(t, 10*time.Second, dispatch.RefusalPace(dispatch.Refused, 1, 0, 1))
}
