package github_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

const webhookSecret = "a webhook secret"

// received is a webhook after the way every webhook goes: verified, then parsed.
type received struct {
	event any
	err   error
}

// world is a stand-in with one organization and one user, a client, and a receiver of webhooks.
func world(t *testing.T) (*standin.Local, *github.Client, <-chan received) {
	t.Helper()
	hooks := make(chan received, 64)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, github.MaxWebhookBody))
		if err == nil {
			err = github.VerifySignature(webhookSecret, r.Header.Get(github.HeaderSignature), body)
		}
		got := received{err: err}
		if err == nil {
			got.event, got.err = github.ParseWebhook(r.Header.Get(github.HeaderEvent), body)
		}
		hooks <- got
	}))
	t.Cleanup(server.Close)
	local, err := standin.Start(t.Context(), standin.Options{
		WebhookURL: server.URL, WebhookSecret: webhookSecret, Installations: []standin.Installation{
			{ID: 42, Account: "acme", Type: "Organization", Repositories: []string{"app"}},
			{ID: 43, Account: "someone", Type: "User", Repositories: []string{"toy"}},
		},
	})
	require.NoError(t, err)
	t.Cleanup(local.Close)
	client, err := github.New(github.Options{BaseURL: local.URL + "/api/v3", AppID: 1, PrivateKey: local.AppKeyPEM})
	require.NoError(t, err)
	return local, client, hooks
}

func next[T any](t *testing.T, hooks <-chan received) T {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case got := <-hooks:
			require.NoError(t, got.err)
			if event, ok := got.event.(T); ok {
				return event
			}
		case <-deadline:
			t.Fatal("the webhook does not come")
		}
	}
}

func TestStandin_Registrations(t *testing.T) {
	t.Parallel()
	_, client, _ := world(t)
	for installation, scope := range map[int64]fleet.Scope{
		42: {Owner: "acme"}, 43: {Owner: "someone", Repo: "toy"},
	} {
		ask := fleet.MintRequest{Scope: scope, Name: "bp-x-1", Labels: []string{"bullpen"}, WorkFolder: "_work"}
		jit, err := client.Mint(t.Context(), installation, ask)
		require.NoError(t, err)
		require.NotEmpty(t, jit.Encoded.Reveal())
		_, err = client.Mint(t.Context(), installation, ask)
		require.ErrorIs(t, err, fleet.ErrNameTaken)
		rate, known := client.MintRate(installation)
		require.True(t, known)
		require.Equal(t, github.ResourceRegistration, rate.Resource)

		found, err := client.FindRunner(t.Context(), installation, scope, "bp-x-1")
		require.NoError(t, err)
		require.Equal(t, fleet.Registration{ID: jit.RunnerID, Name: "bp-x-1"}, found)
		found, err = client.Runner(t.Context(), installation, scope, jit.RunnerID)
		require.NoError(t, err)
		require.Equal(t, "bp-x-1", found.Name)
		var listed []fleet.Registration
		require.NoError(t, client.ListRunners(t.Context(), installation, scope, func(r fleet.Registration) bool {
			listed = append(listed, r)
			return true
		}))
		require.Equal(t, []fleet.Registration{found}, listed)

		require.NoError(t, client.RemoveRunner(t.Context(), installation, scope, jit.RunnerID))
		require.ErrorIs(t, client.RemoveRunner(t.Context(), installation, scope, jit.RunnerID), fleet.ErrNotFound)
		require.NoError(t, client.ControlRead(t.Context(), installation, scope))
		_, err = client.FindRunner(t.Context(), installation, scope, "bp-x-1")
		require.ErrorIs(t, err, github.ErrAbsent)
	}
	elsewhere := client.ControlRead(t.Context(), 42, fleet.Scope{Owner: "someone", Repo: "toy"})
	require.True(t, fleet.Definite(elsewhere), "another account's scope: %v", elsewhere)
	require.ErrorIs(t, client.ControlRead(t.Context(), 999, fleet.Scope{Owner: "acme"}), fleet.ErrForbidden)
}

func TestStandin_WebhooksAndTheirRedelivery(t *testing.T) {
	t.Parallel()
	local, client, hooks := world(t)
	accounts := map[string]int64{}
	for range 2 {
		installed := next[*github.InstallationEvent](t, hooks)
		require.Equal(t, github.InstallationCreated, installed.Action)
		accounts[installed.Account.Login] = installed.InstallationID
	}
	require.Equal(t, map[string]int64{"acme": 42, "someone": 43}, accounts)
	installations, err := client.Installations(t.Context())
	require.NoError(t, err)
	require.Len(t, installations, 2)

	_, err = local.Submit(standin.Submission{FileName: "ci.yaml", Repo: "acme/app", Content: `
name: CI
on: [push]
jobs:
  build:
    runs-on: [self-hosted, bullpen]
    steps:
      - run: "true"
`})
	require.NoError(t, err)
	queued := next[*github.WorkflowJobEvent](t, hooks)
	require.Equal(t, github.JobQueued, queued.Action)
	require.Equal(t, int64(42), queued.InstallationID)
	require.Equal(t, "acme/app", queued.Repository.FullName)
	require.Equal(t, "acme", queued.Organization)
	require.Equal(t, []string{"self-hosted", "bullpen"}, queued.Job.Labels)

	job, err := client.Job(t.Context(), 42, fleet.Repository{Name: "acme/app"}, queued.Job.ID)
	require.NoError(t, err)
	require.Equal(t, queued.Job.Name, job.Name)
	require.Equal(t, "queued", job.Status)

	var delivery github.Delivery
	require.Eventually(t, func() bool { // the attempt is listed when our answer has reached GitHub
		page, err := client.DeliveryPage(t.Context(), "", "")
		for _, d := range page.Deliveries {
			if d.Event == "workflow_job" && d.StatusCode == http.StatusOK {
				delivery = d
			}
		}
		return err == nil && delivery.ID != 0
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, "queued", delivery.Action)
	payload, err := client.Payload(t.Context(), delivery.ID)
	require.NoError(t, err)
	require.Equal(t, delivery.GUID, payload.GUID)
	parsed, err := github.ParseWebhook(payload.Event, payload.Body)
	require.NoError(t, err)
	require.Equal(t, queued, parsed, "what is fetched is what was delivered")
	rate, known := client.AppRate()
	require.True(t, known)
	require.Positive(t, rate.Remaining)
	runs, _, err := client.Runs(t.Context(), 42, "acme/app", github.RunQueued, 1)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	jobs, _, err := client.RunJobs(t.Context(), 42, "acme/app", runs[0].ID, 1)
	require.NoError(t, err)
	require.Equal(t, queued.Job.ID, jobs[0].ID)
	require.NoError(t, client.ReadRuns(t.Context(), 42, fleet.Repository{Name: "acme/app"}))
	require.NoError(t, client.Redeliver(t.Context(), delivery.ID))
	require.Equal(t, queued, next[*github.WorkflowJobEvent](t, hooks))
}

func TestStandin_AJobIsRunAgainOnceItsRunHasCompleted(t *testing.T) {
	t.Parallel()
	local, client, hooks := world(t)
	runs, err := local.Submit(standin.Submission{FileName: "ci.yaml", Repo: "acme/app", Content: `
name: CI
on: [push]
jobs:
  build:
    runs-on: [bullpen]
    steps:
      - run: "true"
`})
	require.NoError(t, err)
	first := next[*github.WorkflowJobEvent](t, hooks)
	refused := client.RerunJob(t.Context(), 42, "acme/app", first.Job.ID)
	require.True(t, fleet.Definite(refused), "it runs: %v", refused)
	require.NoError(t, local.CancelRun(runs[0].ID))
	require.Equal(t, github.JobCompleted, next[*github.WorkflowJobEvent](t, hooks).Action)
	run, err := client.Run(t.Context(), 42, "acme/app", runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, github.RunCompleted, run.Status)
	require.NoError(t, client.RerunJob(t.Context(), 42, "acme/app", first.Job.ID))
	second := next[*github.WorkflowJobEvent](t, hooks)
	require.Equal(t, github.JobQueued, second.Action)
	require.Equal(t, first.Job.RunID, second.Job.RunID)
	require.Equal(t, first.Job.Name, second.Job.Name)
	require.Equal(t, int64(2), second.Job.RunAttempt)
	require.NotEqual(t, first.Job.ID, second.Job.ID)
	run, err = client.Run(t.Context(), 42, "acme/app", runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, int64(2), run.Attempt)

	require.NoError(t, local.CancelRun(runs[0].ID))
	require.Equal(t, github.JobCompleted, next[*github.WorkflowJobEvent](t, hooks).Action)
	require.NoError(t, client.RerunFailedJobs(t.Context(), 42, "acme/app", runs[0].ID))
	require.Equal(t, int64(3), next[*github.WorkflowJobEvent](t, hooks).Job.RunAttempt)
	require.True(t, fleet.Definite(client.RerunFailedJobs(t.Context(), 42, "acme/app", runs[0].ID)), "it runs")
}

func TestStandin_RegistrationBudgetEmpties(t *testing.T) {
	t.Parallel()
	local, err := standin.Start(t.Context(), standin.Options{
		Registration:  standin.RateLimit{Limit: 2, Window: time.Hour},
		Installations: []standin.Installation{{ID: 42, Account: "acme", Type: "Organization"}},
	})
	require.NoError(t, err)
	t.Cleanup(local.Close)
	client, err := github.New(github.Options{BaseURL: local.URL, AppID: 1, PrivateKey: local.AppKeyPEM})
	require.NoError(t, err)
	scope := fleet.Scope{Owner: "acme"}
	var id int64
	for _, name := range []string{"one", "two"} {
		jit, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: scope, Name: name, Labels: []string{"l"}})
		require.NoError(t, err)
		id = jit.RunnerID
	}
	_, err = client.Mint(t.Context(), 42, fleet.MintRequest{Scope: scope, Name: "three", Labels: []string{"l"}})
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, github.ResourceRegistration, limited.Resource)
	require.True(t, limited.Until.After(time.Now()))
	require.NoError(t, client.RemoveRunner(t.Context(), 42, scope, id), "removals go on")
}
