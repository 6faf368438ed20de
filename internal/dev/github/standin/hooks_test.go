package standin_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestWebhooks_SignedAndRealistic(t *testing.T) {
	w := newWorld(t, nil)
	w.eventually(func() bool { return len(w.hooks.got("installation", "created")) == 2 }, "installation webhooks")
	run := w.submit(oneJob)
	w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take().complete("Succeeded", nil)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) == 1 }, "completed")
	var actions []string
	for _, h := range w.hooks.got("workflow_job", "") {
		actions = append(actions, h.Action)
		require.NoError(t, github.ValidateSignature(h.Header.Get("X-Hub-Signature-256"), h.Body, []byte(hookSecret)))
		require.Error(t, github.ValidateSignature(h.Header.Get("X-Hub-Signature-256"), h.Body, []byte("another")))
		require.Regexp(t, `^[0-9a-f-]{36}$`, h.GUID)
		require.Regexp(t, `^GitHub-Hookshot/`, h.Header.Get("User-Agent"))
		require.NotEmpty(t, h.Header.Get("X-GitHub-Hook-ID"))
		require.Equal(t, "application/json", h.Header.Get("Content-Type"))
		event := h.Job
		require.EqualValues(t, 11, event.GetInstallation().GetID())
		require.Equal(t, "acme/app", event.GetRepo().GetFullName())
		require.Equal(t, "acme", event.GetRepo().GetOwner().GetLogin())
		require.Equal(t, "acme", event.GetOrg().GetLogin())
		require.NotEmpty(t, event.GetSender().GetLogin())
		job := event.GetWorkflowJob()
		require.Equal(t, run.ID, job.GetRunID())
		require.Equal(t, "one", job.GetWorkflowName())
		require.Equal(t, "build", job.GetName())
		require.Equal(t, "main", job.GetHeadBranch())
		require.Len(t, job.GetHeadSHA(), 40)
		require.EqualValues(t, 1, job.GetRunAttempt())
		require.Equal(t, []string{"self-hosted", "Linux"}, job.Labels)
		require.False(t, job.GetCreatedAt().IsZero())
	}
	require.Equal(t, []string{"queued", "in_progress", "completed"}, actions, "one job's webhooks come in order")
	completed := w.hooks.got("workflow_job", "completed")[0].Job.GetWorkflowJob()
	require.Equal(t, "success", completed.GetConclusion())
	require.Equal(t, "a", completed.GetRunnerName())
	require.Len(t, completed.Steps, 1)
	require.Nil(t, w.hooks.got("workflow_job", "queued")[0].Job.GetWorkflowJob().RunnerID)
}

func TestWebhooks_WaitingUntilApproved(t *testing.T) {
	w := newWorld(t, nil)
	runs, err := w.in.Admin.Submit(w.ctx, standin.Submission{FileName: "ci.yaml", Content: oneJob, Repo: "acme/app", HoldForApproval: true})
	require.NoError(t, err)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "waiting")) == 1 }, "waiting")
	require.Equal(t, "waiting", w.job(runs[0], "build").Status)
	w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	require.False(t, w.job(runs[0], "build").Assigned)
	require.NoError(t, w.in.Admin.ApproveRun(w.ctx, runs[0].ID))
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 1 }, "queued")
	require.True(t, w.job(runs[0], "build").Assigned)
}

func TestDeliveries_ListedAndRedeliveredUnderTheSameGUID(t *testing.T) {
	w := newWorld(t, nil)
	var broken atomic.Bool
	broken.Store(true)
	w.hooks.mu.Lock()
	w.hooks.answer = func(h hook) int {
		if h.Event == "workflow_job" && broken.Load() {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}
	w.hooks.mu.Unlock()
	w.submit(oneJob)
	w.submit(oneJob)
	w.submit(oneJob)
	var all []*github.HookDelivery
	w.eventually(func() bool {
		all = nil
		opts := &github.ListCursorOptions{PerPage: 2}
		for {
			page, response, err := w.app.Apps.ListHookDeliveries(w.ctx, opts)
			require.NoError(t, err)
			all = append(all, page...)
			if response.Cursor == "" {
				break
			}
			opts.Cursor = response.Cursor
		}
		return len(all) == 5
	}, "five deliveries over several pages")
	var failed *github.HookDelivery
	for i, d := range all {
		if i > 0 {
			require.Less(t, d.GetID(), all[i-1].GetID(), "newest first")
		}
		if d.GetEvent() == "workflow_job" {
			require.Equal(t, 500, d.GetStatusCode())
			failed = d
		} else {
			require.Equal(t, 200, d.GetStatusCode())
		}
	}
	require.Len(t, w.hooks.got("workflow_job", "queued"), 3, "nothing is redelivered automatically")

	full := must(w.app.Apps.GetHookDelivery(w.ctx, failed.GetID()))
	parsed, err := full.ParseRequestPayload()
	require.NoError(t, err)
	require.Equal(t, "queued", parsed.(*github.WorkflowJobEvent).GetAction())
	require.Equal(t, failed.GetGUID(), full.GetRequest().GetHeader("X-GitHub-Delivery"))

	broken.Store(false)
	_, response, err := w.app.Apps.RedeliverHookDelivery(w.ctx, failed.GetID())
	var accepted *github.AcceptedError
	require.ErrorAs(t, err, &accepted)
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 4 }, "delivered again")
	again := w.hooks.got("workflow_job", "queued")[3]
	require.Equal(t, failed.GetGUID(), again.GUID)
	w.eventually(func() bool {
		newest, _, err := w.app.Apps.ListHookDeliveries(w.ctx, nil)
		require.NoError(t, err)
		return len(newest) > 0 && newest[0].GetRedelivery() && newest[0].GetGUID() == failed.GetGUID() && newest[0].GetID() != failed.GetID() && newest[0].GetStatusCode() == 200
	}, "the new attempt is listed")
	w.clock.Advance(73 * time.Hour)
	gone, _, err := w.app.Apps.ListHookDeliveries(w.ctx, nil)
	require.NoError(t, err)
	require.Empty(t, gone, "deliveries are kept for three days")
	require.Empty(t, w.deliveries())
}

func TestDeliveries_SlowReceiverTimesOut(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, func(o *standin.Options) { o.WebhookTimeout = 30 * time.Millisecond })
	w.hooks.mu.Lock()
	w.hooks.answer = func(hook) int { await.OrEnd(t, release); return 200 }
	w.hooks.mu.Unlock()
	defer close(release)
	w.submit(oneJob)
	w.eventually(func() bool {
		for _, d := range w.deliveries() {
			if d.Event == "workflow_job" {
				return d.StatusCode == http.StatusGatewayTimeout && d.Status == "timed out"
			}
		}
		return false
	}, "timed out")
}

func (w *world) deliveries() []standin.DeliveryView {
	w.t.Helper()
	list, err := w.in.Admin.Deliveries(w.ctx, 100)
	require.NoError(w.t, err)
	return list
}

func (w *world) fault(f standin.Fault) {
	w.t.Helper()
	_, err := w.in.Admin.AddFault(w.ctx, f)
	require.NoError(w.t, err)
}

func TestFault_Webhooks(t *testing.T) {
	const action = "queued"
	t.Run("drop is listed as failed and can be redelivered", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: action, Times: 1})
		w.submit(oneJob)
		var failed standin.DeliveryView
		w.eventually(func() bool {
			for _, d := range w.deliveries() {
				if d.Event == "workflow_job" && d.StatusCode == http.StatusBadGateway {
					failed = d
				}
			}
			return failed.ID != 0
		}, "listed as failed")
		require.Empty(t, w.hooks.got("workflow_job", ""))
		_, _, err := w.app.Apps.RedeliverHookDelivery(w.ctx, failed.ID)
		require.Error(t, err) // 202
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", action)) == 1 }, "redelivered")
	})
	t.Run("vanish leaves no trace", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fault(standin.Fault{Kind: "hook-vanish", Action: action, Times: 1})
		w.submit(oneJob)
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.deliveries()) == 3 }, "two installations and the second job")
		require.Len(t, w.hooks.got("workflow_job", action), 1)
	})
	t.Run("double has one GUID", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fault(standin.Fault{Kind: "hook-double", Action: action})
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", action)) == 2 }, "twice")
		got := w.hooks.got("workflow_job", action)
		require.Equal(t, got[0].GUID, got[1].GUID)
	})
	t.Run("reorder comes after the next", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fault(standin.Fault{Kind: "hook-reorder", Action: action, Job: "bui*"})
		w.submit(oneJob)
		w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", "")) == 2 }, "both")
		got := w.hooks.got("workflow_job", "")
		require.Equal(t, "in_progress", got[0].Action)
		require.Equal(t, "queued", got[1].Action)
	})
	t.Run("delay", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fault(standin.Fault{Kind: "hook-delay", Action: action, Delay: standin.Duration(30 * time.Millisecond)})
		began := time.Now()
		w.submit(oneJob)
		w.eventually(func() bool { return len(w.hooks.got("workflow_job", action)) == 1 }, "late")
		require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	})
}

// An event caused by a request that is answered while the stand-in stops starts no worker beside the wait for all of them,
// a race that was seen.
func TestWebhooks_ARequestBesideTheEndStartsNoWorker(t *testing.T) {
	for range 10 {
		w := newWorld(t, nil)
		began, ended := make(chan struct{}), make(chan struct{})
		var asking sync.WaitGroup
		for range 2 {
			asking.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-ended:
						return
					default:
						_, _ = w.in.Submit(standin.Submission{FileName: "ci.yaml", Content: oneJob, Repo: "acme/app"})
					}
					if i == 0 {
						began <- struct{}{}
					}
				}
			})
		}
		await.Receive(t, began, "a request begins")
		await.Receive(t, began, "a request begins")
		w.in.Close()
		close(ended)
		await.Return(t, asking.Wait, "the requests end")
	}
}
