package standin_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

func TestFault_RefusesNonsense(t *testing.T) {
	w := newWorld(t, nil)
	for _, f := range []standin.Fault{
		{Kind: "hook-explode"}, {Kind: "rest-status"}, {Kind: "rest-status", Status: 200}, {Kind: "rest-latency"},
		{Kind: "rest-cut", Percent: 101}, {Kind: "busy-hidden", Runner: "["}, {Kind: "rate-secondary", Status: 500},
		{Kind: "hook-drop", Runner: "a"}, {Kind: "runner-starved", Delay: 1}, {Kind: "queue-timeout"}, {Kind: "scope-missing", Scope: "["},
	} {
		_, err := w.in.Admin.AddFault(w.ctx, f)
		var refused *standin.AdminError
		require.ErrorAs(t, err, &refused, "%+v", f)
		require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
	}
}

func TestFault_RESTStatusLatencyAndTokens(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "rest-status", Route: "generate-jitconfig", Status: 429, Delay: standin.Duration(7 * time.Second), Times: 1})
	_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x"))
	require.Error(t, err)
	require.Equal(t, 429, statusOf(response))
	require.Equal(t, "7", response.Header.Get("Retry-After"))
	require.Empty(t, w.in.Runners(), "it took no effect")
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x")))

	w.fault(standin.Fault{Kind: "rest-status", Route: "GET /orgs/{login}/actions/runners", Status: 502, Times: 2})
	for range 2 {
		_, response, err = w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
		require.Error(t, err)
		require.Equal(t, 502, statusOf(response))
	}
	must(w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil))

	w.fault(standin.Fault{Kind: "rest-latency", Route: "generate-jitconfig", Delay: standin.Duration(40 * time.Millisecond), Times: 1})
	began := time.Now()
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("b", "x")))
	require.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)

	w.fault(standin.Fault{Kind: "token-expired", Times: 1})
	_, response, err = w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, statusOf(response))
	_, response, err = w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
	require.Error(t, err, "that token stays expired")
	require.Equal(t, http.StatusUnauthorized, statusOf(response))
	faults, err := w.in.Admin.Faults(w.ctx)
	require.NoError(t, err)
	require.Len(t, faults, 4)
	require.Equal(t, 2, faults[1].Hits)
	require.NoError(t, w.in.Admin.RemoveFault(w.ctx, faults[0].ID))
	require.Error(t, w.in.Admin.RemoveFault(w.ctx, faults[0].ID))
	require.NoError(t, w.in.Admin.RemoveFault(w.ctx, 0))
}

func TestFault_MintTakesEffectButItsAnswerIsLost(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "rest-cut", Route: "generate-jitconfig", Times: 1})
	_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x"))
	require.Error(t, err)
	require.Nil(t, response)
	var answered *github.ErrorResponse
	require.False(t, errors.As(err, &answered), "no answer came at all")
	found := must(w.org.Actions.ListOrganizationRunners(w.ctx, "acme", &github.ListRunnersOptions{Name: github.Ptr("a")}))
	require.Len(t, found.Runners, 1, "the registration exists nevertheless")
	require.Equal(t, map[int]int{0: 1}, w.in.Stats().Routes["POST /orgs/{login}/actions/runners/generate-jitconfig"].ByStatus)
}

func TestFault_SessionConflict(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "session-conflict", Runner: "a*", Times: 1})
	r := w.mint("abc", "x")
	r.authorize(ps256, w.clock.Now())
	var body struct{ Source, ErrorKind string }
	require.Equal(t, http.StatusConflict, r.call("POST", r.broker+"/session", r.token, map[string]any{}, &body))
	require.Equal(t, "actions-broker-listener", body.Source)
	require.NotEmpty(t, body.ErrorKind)
	require.Equal(t, http.StatusOK, r.openSession())
}

func TestFault_AssignDifferent(t *testing.T) {
	w := newWorld(t, nil)
	first, second := w.submit(oneJob), w.submit(oneJob)
	w.fault(standin.Fault{Kind: "assign-different"})
	a := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	require.True(t, w.job(second, "build").Assigned, "the runner minted for the first job gets the second")
	require.False(t, w.job(first, "build").Assigned)
	a.take()
	b := w.mint("b", "self-hosted", "linux").start(w.clock.Now())
	b.take()
	require.Equal(t, "b", w.job(first, "build").RunnerName)
	require.Equal(t, "a", w.job(second, "build").RunnerName)

	third := w.submit(oneJob)
	w.mint("c", "self-hosted", "linux").start(w.clock.Now())
	require.False(t, w.job(third, "build").Assigned, "it waits a little for another runner")
	w.clock.Advance(6 * time.Second)
	w.in.Tick()
	require.True(t, w.job(third, "build").Assigned, "but not for ever")
}

func TestFault_BusyHiddenAndRemoveBusy(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "busy-hidden", Delay: standin.Duration(30 * time.Second)})
	w.fault(standin.Fault{Kind: "remove-busy"})
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	r.take()
	busy := func() bool { return must(w.org.Actions.GetOrganizationRunner(w.ctx, "acme", r.id)).GetBusy() }
	require.False(t, busy())
	w.clock.Advance(31 * time.Second)
	require.True(t, busy())
	_, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
	require.NoError(t, err, "as has been seen in the wild")
	require.Empty(t, w.in.Runners())
	require.Equal(t, http.StatusOK, r.renew())
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil), "its job runs on")
	require.Equal(t, "success", w.job(run, "build").Conclusion)
}

func TestFault_RunnerTokenExpires(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	w.submit(oneJob)
	w.fault(standin.Fault{Kind: "token-expired", Route: "/message", Times: 1})
	_, code := r.poll("Online")
	require.Equal(t, http.StatusUnauthorized, code)
	r.authorize(ps256, w.clock.Now())
	r.take()
}

func TestOption_AssignChooses(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) {
		o.Assign = func(_ standin.JobView, candidates []standin.RunnerView) int {
			for i, c := range candidates {
				if c.Name == "chosen" {
					return i
				}
			}
			return -1
		}
	})
	w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	run := w.submit(oneJob)
	require.False(t, w.job(run, "build").Assigned)
	w.mint("chosen", "self-hosted", "linux").start(w.clock.Now()).take()
	require.Equal(t, "chosen", w.job(run, "build").RunnerName)
}

func TestOption_ShuffledAssignment(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) {
		o.ShuffleAssignment = true
		o.Pick = func(n int) int { return n - 1 }
	})
	w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	w.mint("b", "self-hosted", "linux").start(w.clock.Now())
	w.submit(oneJob)
	for _, rn := range w.in.Runners() {
		require.Equal(t, rn.Name == "b", rn.Busy)
	}
}
