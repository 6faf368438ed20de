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

// strikes is one kind of fault in force: the fault, and what a client of GitHub sees of it.
type strikes struct {
	fault standin.Fault
	see   func(t *testing.T, w *world)
}

// TestFault_EveryKindStrikes lets each kind of the catalogue strike once, and fails for a kind without a scenario.
func TestFault_EveryKindStrikes(t *testing.T) {
	scenarios := map[standin.FaultKind]strikes{}
	for _, some := range []map[standin.FaultKind]strikes{hookStrikes, callStrikes, runnerStrikes, jobStrikes} {
		for kind, one := range some {
			scenarios[kind] = one
		}
	}
	for _, kind := range standin.FaultKinds() {
		t.Run(string(kind), func(t *testing.T) {
			one, ok := scenarios[kind]
			require.True(t, ok, "no scenario lets this kind strike")
			one.fault.Kind = kind
			w := newWorld(t, nil)
			w.fault(one.fault)
			one.see(t, w)
			faults, err := w.in.Admin.Faults(w.ctx)
			require.NoError(t, err)
			require.Positive(t, faults[0].Hits)
		})
	}
}

const short = standin.Duration(30 * time.Millisecond)

var queuedOnce = standin.Fault{Event: "workflow_job", Action: "queued", Installation: 11, Times: 1}

func with(f standin.Fault, change func(*standin.Fault)) standin.Fault {
	change(&f)
	return f
}

// delivered waits for the delivery of the one queued job and returns it.
func (w *world) delivered() (found standin.DeliveryView) {
	w.t.Helper()
	w.eventually(func() bool {
		for _, d := range w.deliveries() {
			if d.Event == "workflow_job" {
				found = d
			}
		}
		return found.ID != 0
	}, "listed")
	return found
}

// again asks for a delivery again and waits until it has come.
func (w *world) again(id int64, times int) {
	w.t.Helper()
	_, _, err := w.app.Apps.RedeliverHookDelivery(w.ctx, id)
	var accepted *github.AcceptedError
	require.ErrorAs(w.t, err, &accepted)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == times }, "redelivered")
}

var hookStrikes = map[standin.FaultKind]strikes{
	standin.FaultHookDrop: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		require.Equal(t, http.StatusBadGateway, w.delivered().StatusCode)
		require.Empty(t, w.hooks.got("workflow_job", ""))
		w.again(w.delivered().ID, 1)
	}},
	standin.FaultHookVanish: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.deliveries()) == 3 }, "two installations and the second job")
		var bent []standin.DeliveryRecord
		for _, d := range w.in.Ledger().Deliveries {
			if len(d.Faults) > 0 {
				bent = append(bent, d)
			}
		}
		require.Len(t, bent, 1, "the ledger knows of it")
		require.Nil(t, bent[0].DeliveredAt)
		_, response, _ := w.app.Apps.GetHookDelivery(w.ctx, bent[0].ID)
		require.Equal(t, http.StatusNotFound, statusOf(response))
	}},
	standin.FaultHookAnswered: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		require.Equal(t, http.StatusOK, w.delivered().StatusCode)
		require.Empty(t, w.hooks.got("workflow_job", ""))
		w.again(w.delivered().ID, 1)
	}},
	standin.FaultHookLateAnswer: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		require.Equal(t, http.StatusGatewayTimeout, w.delivered().StatusCode)
		require.Len(t, w.hooks.got("workflow_job", "queued"), 1, "it was received nevertheless")
		w.again(w.delivered().ID, 2)
	}},
	standin.FaultHookDelay: {with(queuedOnce, func(f *standin.Fault) { f.Delay = short }), func(t *testing.T, w *world) {
		began := time.Now()
		w.submit(oneJob)
		w.delivered()
		require.GreaterOrEqual(t, time.Since(began), time.Duration(short))
	}},
	standin.FaultHookDouble: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 2 }, "twice")
		got := w.hooks.got("workflow_job", "queued")
		require.Equal(t, got[0].GUID, got[1].GUID)
	}},
	standin.FaultHookReorder: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", "")) == 2 }, "both")
		require.Equal(t, "in_progress", w.hooks.got("workflow_job", "")[0].Action)
	}},
	standin.FaultHookSignature: {queuedOnce, func(t *testing.T, w *world) {
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 1 }, "sent")
		valid := func(h hook) error {
			return github.ValidateSignature(h.Header.Get("X-Hub-Signature-256"), h.Body, []byte(hookSecret))
		}
		require.Error(t, valid(w.hooks.got("workflow_job", "queued")[0]))
		w.again(w.delivered().ID, 2)
		require.NoError(t, valid(w.hooks.got("workflow_job", "queued")[1]), "asked for again, it is signed well")
	}},
}

// listed lists acme's runners, through go-github.
func (w *world) listed() (int, error) {
	_, response, err := w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
	return statusOf(response), err
}

var callStrikes = map[standin.FaultKind]strikes{
	standin.FaultRESTStatus: {standin.Fault{Route: "actions/runners", Status: 502, Times: 1}, func(t *testing.T, w *world) {
		code, err := w.listed()
		require.Error(t, err)
		require.Equal(t, 502, code)
	}},
	standin.FaultRESTLatency: {standin.Fault{Scope: "acme", Delay: short, Times: 1}, func(t *testing.T, w *world) {
		began := time.Now()
		_, err := w.listed()
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Duration(short))
	}},
	standin.FaultRESTCutBefore: {standin.Fault{Route: "generate-jitconfig", Job: "build", Times: 1}, func(t *testing.T, w *world) {
		must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("other", "x")))
		w.submit(oneJob)
		_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "self-hosted", "linux"))
		require.Error(t, err, "it is the mint for the job")
		require.Nil(t, response)
		require.Len(t, w.in.Runners(), 1, "it took no effect")
	}},
	standin.FaultRESTCut: {standin.Fault{Route: "generate-jitconfig", Runner: "a", Times: 1}, func(t *testing.T, w *world) {
		_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x"))
		require.Error(t, err)
		require.Nil(t, response)
		require.Len(t, w.in.Runners(), 1, "the registration exists nevertheless")
	}},
	standin.FaultRateEmpty: {standin.Fault{Bucket: "core", Installation: 11, Delay: standin.Duration(time.Minute), Times: 1}, func(t *testing.T, w *world) {
		for range 2 {
			_, response, err := w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
			var limited *github.RateLimitError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, "core", response.Header.Get("X-RateLimit-Resource"))
			require.Zero(t, limited.Rate.Remaining)
			require.WithinDuration(t, w.clock.Now().Add(time.Minute), limited.Rate.Reset.Time, 2*time.Second)
		}
		must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x"))) // another bucket
		must(w.user.Actions.ListRunners(w.ctx, "octo", "solo", nil))           // another installation
		w.clock.Advance(time.Minute)
		_, err := w.listed()
		require.NoError(t, err)
	}},
	standin.FaultRateSecondary: {standin.Fault{Route: "actions/runners", Status: 429, Delay: standin.Duration(7 * time.Second), Times: 1}, func(t *testing.T, w *world) {
		_, response, err := w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
		var abuse *github.AbuseRateLimitError
		require.True(t, errors.As(err, &abuse) || statusOf(response) == 429)
		require.Equal(t, "7", response.Header.Get("Retry-After"))
		require.NotEqual(t, "0", response.Header.Get("X-RateLimit-Remaining"))
	}},
	standin.FaultForbidden: {standin.Fault{Scope: "acme/*"}, func(t *testing.T, w *world) {
		_, response, err := w.org.Actions.ListRunners(w.ctx, "acme", "app", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusForbidden, statusOf(response))
		_, err = w.listed()
		require.NoError(t, err, "the organization is another scope")
		require.NoError(t, w.in.Admin.RemoveFault(w.ctx, 0))
		w.fault(standin.Fault{Kind: standin.FaultForbidden, Installation: 11})
		code, err := w.listed()
		require.Error(t, err)
		require.Equal(t, http.StatusForbidden, code)
		must(w.user.Actions.ListRunners(w.ctx, "octo", "solo", nil))
	}},
	standin.FaultMissing: {standin.Fault{Installation: 11}, func(t *testing.T, w *world) {
		code, err := w.listed()
		require.Error(t, err)
		require.Equal(t, http.StatusNotFound, code)
		_, response, err := w.org.Actions.GetOrganizationRunner(w.ctx, "acme", 1)
		require.Error(t, err)
		require.Equal(t, http.StatusNotFound, statusOf(response))
		must(w.user.Actions.ListRunners(w.ctx, "octo", "solo", nil))
	}},
	standin.FaultTokens: {standin.Fault{Installation: 11, Times: 1}, func(t *testing.T, w *world) {
		must(w.user.Actions.ListRunners(w.ctx, "octo", "solo", nil))
		for range 2 {
			code, err := w.listed()
			require.Error(t, err, "it stays expired")
			require.Equal(t, http.StatusUnauthorized, code)
		}
	}},
}

var runnerStrikes = map[standin.FaultKind]strikes{
	standin.FaultSession: {standin.Fault{Runner: "a*", Times: 1}, func(t *testing.T, w *world) {
		r := w.mint("abc", "x")
		r.authorize(ps256, w.clock.Now())
		require.Equal(t, http.StatusConflict, r.openSession())
		require.Equal(t, http.StatusOK, r.openSession())
	}},
	standin.FaultSessionRefused: {standin.Fault{Job: "build", Status: 400}, func(t *testing.T, w *world) {
		w.submit(oneJob)
		r := w.mint("a", "self-hosted", "linux")
		r.authorize(ps256, w.clock.Now())
		require.Equal(t, http.StatusBadRequest, r.openSession())
		require.False(t, w.in.Runners()[0].Online)
	}},
	standin.FaultVersionRefused: {standin.Fault{Runner: "a"}, func(t *testing.T, w *world) {
		r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
		var refusal struct{ ErrorKind string }
		require.Equal(t, http.StatusForbidden, r.call("GET", r.broker+"/message?sessionId="+r.session, r.token, nil, &refusal))
		require.Equal(t, "RunnerVersionTooOld", refusal.ErrorKind)
	}},
	standin.FaultRunnerCut: {standin.Fault{Runner: "a"}, func(t *testing.T, w *world) {
		r := w.mint("a", "self-hosted", "linux")
		_, err := r.tryAuthorize(ps256, w.clock.Now())
		require.Error(t, err)
		other := w.mint("b", "self-hosted", "linux").start(w.clock.Now())
		require.NoError(t, w.in.Admin.RemoveFault(w.ctx, 0))
		w.fault(standin.Fault{Kind: standin.FaultRunnerCut, Runner: "b"})
		_, err = other.tryCall(t.Context(), "GET", other.broker+"/message?sessionId="+other.session, other.token, nil, nil)
		require.Error(t, err, "whatever it calls")
	}},
	standin.FaultRunnerStarved: {standin.Fault{Times: 1}, func(t *testing.T, w *world) {
		run := w.submit(oneJob)
		w.mint("hungry", "self-hosted", "linux").start(w.clock.Now())
		require.True(t, w.in.Runners()[0].Online)
		require.False(t, w.job(run, "build").Assigned)
		w.mint("b", "self-hosted", "linux").start(w.clock.Now()).take()
		require.Equal(t, "b", w.job(run, "build").RunnerName)
	}},
	standin.FaultRunnerCleanup: {standin.Fault{Delay: standin.Duration(10 * time.Minute), Times: 1}, func(t *testing.T, w *world) {
		w.mint("a", "x")
		w.mint("b", "x")
		w.clock.Advance(11 * time.Minute)
		w.in.Tick()
		require.Len(t, w.in.Runners(), 1)
		require.Equal(t, "offline too long", w.in.Ledger().Runners[0].RemovedBy)
	}},
	standin.FaultAssignDifferent: {standin.Fault{Job: "build"}, func(t *testing.T, w *world) {
		first, second := w.submit(oneJob), w.submit(oneJob)
		w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
		require.True(t, w.job(second, "build").Status == "in_progress", "the runner minted for the first job gets the second")
		require.Equal(t, "queued", w.job(first, "build").Status)
		w.mint("b", "self-hosted", "linux").start(w.clock.Now()).take()
		require.Equal(t, "b", w.job(first, "build").RunnerName)
	}},
	standin.FaultBusyHidden: {standin.Fault{Delay: standin.Duration(30 * time.Second)}, func(t *testing.T, w *world) {
		r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
		w.submit(oneJob)
		r.take()
		busy := func() bool { return must(w.org.Actions.GetOrganizationRunner(w.ctx, "acme", r.id)).GetBusy() }
		require.False(t, busy())
		w.clock.Advance(31 * time.Second)
		require.True(t, busy())
	}},
	standin.FaultRemoveBusy: {standin.Fault{Times: 1}, func(t *testing.T, w *world) {
		r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
		run := w.submit(oneJob)
		r.take()
		_, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, r.complete("succeeded", nil), "its job runs on")
		gone := w.in.Ledger().Runners[0]
		require.Equal(t, "api: installation 11", gone.RemovedBy)
		require.Equal(t, w.job(run, "build").ID, gone.RemovedBusy)
	}},
	standin.FaultRemoveRefused: {standin.Fault{Times: 1}, func(t *testing.T, w *world) {
		r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
		answer, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
		require.Error(t, err)
		require.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode)
		_, err = w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
		require.NoError(t, err)
	}},
}

var jobStrikes = map[standin.FaultKind]strikes{
	standin.FaultJobCancel: {standin.Fault{Job: "build", Delay: standin.Duration(20 * time.Second), Times: 1}, func(t *testing.T, w *world) {
		run := w.submit(oneJob)
		r := w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
		w.clock.Advance(21 * time.Second)
		w.in.Tick()
		m, _ := r.poll("Busy")
		require.Equal(t, "JobCancellation", m.MessageType)
		require.Equal(t, http.StatusOK, r.complete("canceled", nil))
		require.Equal(t, "cancelled", w.job(run, "build").Conclusion)
		require.True(t, w.in.Ledger().Jobs[0].Cancelled)
	}},
	standin.FaultQueueTimeout: {standin.Fault{Delay: standin.Duration(time.Hour), Times: 1}, func(t *testing.T, w *world) {
		run, other := w.submit(oneJob), w.submit(oneJob)
		w.clock.Advance(61 * time.Minute)
		w.in.Tick()
		require.Equal(t, "cancelled", w.job(run, "build").Conclusion)
		require.Equal(t, "queued", w.job(other, "build").Status)
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) == 1 }, "completed")
	}},
}
