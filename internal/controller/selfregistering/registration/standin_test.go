package registration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// secrets are Secrets in memory, by name.
type secrets map[string]map[string][]byte

func (s secrets) Secret(_ context.Context, _, name string) (map[string][]byte, string, error) {
	data, ok := s[name]
	if !ok {
		return nil, "", registration.ErrNoSecret
	}
	return data, fmt.Sprint(data), nil
}

// world is a stand-in with an enterprise, its organization, tokens and an App, and a Hub of both.
func world(t *testing.T) (*standin.Local, *registration.Hub) {
	t.Helper()
	in, err := standin.Start(t.Context(), standin.Options{
		Installations: []standin.Installation{{ID: 11, Account: "acme", Repositories: []string{"app"}, RunnerGroups: []string{"Big Iron"}}},
		Enterprises:   []standin.Enterprise{{Slug: "big", Accounts: []string{"acme"}, RunnerGroups: []string{"Big Iron"}}},
		Tokens: []standin.PersonalToken{{Name: "person", Value: "ghp_person"},
			{Name: "reader", Value: "ghp_reader", Powerless: true}},
		RunnerKeys: 1,
	})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	app, err := github.New(github.Options{BaseURL: in.URL + "/api/v3", AppID: 1, PrivateKey: in.AppKeyPEM})
	require.NoError(t, err)
	hub, err := registration.NewHub(registration.HubOptions{
		App: app, GitHub: github.Options{BaseURL: in.URL + "/api/v3"}, Secrets: secrets{
			"person": {"github_token": []byte("ghp_person\n")}, "reader": {"token": []byte("ghp_reader")},
			"app": {"github_app_id": []byte("1"), "github_app_private_key": in.AppKeyPEM},
		},
	})
	require.NoError(t, err)
	return in, hub
}

var places = []struct {
	secret string
	target registration.Target
}{
	{"person", registration.Target{Enterprise: "big"}},
	{"person", registration.Target{Enterprise: "big", Group: "big iron"}},
	{"person", registration.Target{Organization: "acme", Group: "BIG IRON"}},
	{"person", registration.Target{Repository: "acme/app"}},
	{"app", registration.Target{Organization: "acme"}},
	{"app", registration.Target{Repository: "acme/app"}},
	{"", registration.Target{Organization: "acme", Group: "Default"}},
	{"", registration.Target{Repository: "acme/app"}},
}

func TestStandin_RUN2_EphemeralAndStaticRunnersComeAndGo(t *testing.T) {
	t.Parallel()
	in, hub := world(t)
	for n, one := range places {
		t.Run(fmt.Sprintf("%+v", one), func(t *testing.T) {
			at, err := hub.For(t.Context(), registration.Credentials{Namespace: "ci", Secret: one.secret}, one.target)
			require.NoError(t, err)
			require.Equal(t, one.target.Repository != "", at.Target().RepositoryID != 0)

			name := fmt.Sprintf("ephemeral-%d", n)
			jit, err := at.JIT(t.Context(), registration.JITRequest{Name: name, Labels: []string{"x"}})
			require.NoError(t, err)
			_, err = at.JIT(t.Context(), registration.JITRequest{Name: name, Labels: []string{"x"}})
			require.ErrorIs(t, err, fleet.ErrNameTaken)
			found, err := at.Find(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, jit.RunnerID, found.ID)
			subject := registration.Subject{ID: jit.RunnerID, Name: name}
			require.Equal(t, lifecycle.Granted, at.Remove(t.Context(), subject).Verdict)
			again := at.Remove(t.Context(), subject)
			require.Equal(t, lifecycle.Granted, again.Verdict, "asking is idempotent: %+v", again)
			_, err = at.Find(t.Context(), name)
			require.ErrorIs(t, err, github.ErrAbsent)

			token, err := at.Token(t.Context())
			require.NoError(t, err)
			require.Greater(t, time.Until(token.ExpiresAt), 50*time.Minute)
			name = fmt.Sprintf("static-%d", n)
			require.NoError(t, runner.Configure(t.Context(), runner.ConfigureOptions{Root: t.TempDir(), Environ: []string{
				"ACTIONS_RUNNER_INPUT_URL=" + token.URL, "ACTIONS_RUNNER_INPUT_TOKEN=" + token.Value.Reveal(),
				"ACTIONS_RUNNER_INPUT_NAME=" + name, "ACTIONS_RUNNER_INPUT_RUNNERGROUP=" + one.target.Group,
			}}))
			require.Contains(t, names(t, at), name)
			require.Equal(t, lifecycle.Granted, at.Remove(t.Context(), registration.Subject{Name: name}).Verdict)
			require.NotContains(t, names(t, at), name)
		})
	}
	runners, err := in.Admin.Runners(t.Context())
	require.NoError(t, err)
	require.Empty(t, runners)
}

func names(t *testing.T, at registration.Registrar) (all []string) {
	t.Helper()
	require.NoError(t, at.List(t.Context(), func(one registration.Registration) bool {
		all = append(all, one.Name)
		return true
	}))
	return all
}

func TestStandin_EXCL6_WhatRefusalsMean(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		fault standin.Fault
		want  lifecycle.Verdict
		still bool // registered
		wait  bool // NotBefore
	}{
		"busy":                 {standin.Fault{Kind: standin.FaultRemoveRefused}, lifecycle.Busy, true, false},
		"removing forbidden":   {standin.Fault{Kind: standin.FaultForbidden, Route: "DELETE"}, lifecycle.Unknown, true, false},
		"scope forbidden":      {standin.Fault{Kind: standin.FaultForbidden}, lifecycle.Unknown, true, false},
		"listed and not found": {standin.Fault{Kind: standin.FaultMissing, Route: "DELETE"}, lifecycle.Unknown, true, false},
		"scope missing":        {standin.Fault{Kind: standin.FaultMissing}, lifecycle.Unknown, true, false},
		"limited":              {standin.Fault{Kind: standin.FaultRateEmpty, Route: "DELETE"}, lifecycle.Unknown, true, true},
		"5xx":                  {standin.Fault{Kind: standin.FaultRESTStatus, Route: "DELETE", Status: 502}, lifecycle.Unknown, true, false},
		"answer lost":          {standin.Fault{Kind: standin.FaultRESTCut, Route: "DELETE"}, lifecycle.Unknown, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, hub := world(t)
			at, err := hub.For(t.Context(), registration.Credentials{Namespace: "ci", Secret: "person"}, registration.Target{Repository: "acme/app"})
			require.NoError(t, err)
			jit, err := at.JIT(t.Context(), registration.JITRequest{Name: "r-1", Labels: []string{"x"}})
			require.NoError(t, err)
			fault, err := in.Admin.AddFault(t.Context(), one.fault)
			require.NoError(t, err)
			got := at.Remove(t.Context(), registration.Subject{ID: jit.RunnerID, Name: "r-1"})
			require.Equal(t, one.want, got.Verdict, "%+v", got)
			require.Equal(t, one.wait, !got.NotBefore.IsZero(), "%+v", got)
			require.Empty(t, got.Proof)
			runners, err := in.Admin.Runners(t.Context())
			require.NoError(t, err)
			require.Equal(t, one.still, len(runners) == 1)
			require.NoError(t, in.Admin.RemoveFault(t.Context(), fault.ID))
		})
	}
}

func TestStandin_EXCL6_ARepositoryThatWasRenamedOrIsGone(t *testing.T) {
	t.Parallel()
	in, hub := world(t)
	person := registration.Credentials{Namespace: "ci", Secret: "person"}
	at, err := hub.For(t.Context(), person, registration.Target{Repository: "acme/app"})
	require.NoError(t, err)
	one, err := at.JIT(t.Context(), registration.JITRequest{Name: "r-1", Labels: []string{"x"}})
	require.NoError(t, err)
	require.NoError(t, in.Admin.RenameRepository(t.Context(), "acme/app", "moved"))
	require.Equal(t, lifecycle.Granted, at.Remove(t.Context(), registration.Subject{ID: one.RunnerID, Name: "r-1"}).Verdict)
	runners, err := in.Admin.Runners(t.Context())
	require.NoError(t, err)
	require.Empty(t, runners, "it was removed, and not only assumed to be gone")

	gone, err := hub.For(t.Context(), person, registration.Target{Repository: "acme/never", RepositoryID: 987654})
	require.NoError(t, err, "what is to be removed needs nothing to be looked up")
	for _, subject := range []registration.Subject{{ID: 5, Name: "r-1"}, {Name: "r-1"}} {
		require.Equal(t, lifecycle.Unknown, gone.Remove(t.Context(), subject).Verdict)
	}
}

func TestStandin_CredentialsThatMayNotOrMayNoMore(t *testing.T) {
	t.Parallel()
	in, hub := world(t)
	reader, err := hub.For(t.Context(), registration.Credentials{Namespace: "ci", Secret: "reader"}, registration.Target{Organization: "acme"})
	require.NoError(t, err)
	_, err = reader.JIT(t.Context(), registration.JITRequest{Name: "r-1", Labels: []string{"x"}})
	require.ErrorIs(t, err, registration.ErrTarget)
	_, err = reader.Token(t.Context())
	require.ErrorIs(t, err, registration.ErrTarget)

	_, err = hub.For(t.Context(), registration.Credentials{Namespace: "ci", Secret: "app"}, registration.Target{Organization: "elsewhere"})
	require.ErrorIs(t, err, registration.ErrTarget)

	person, err := hub.For(t.Context(), registration.Credentials{Namespace: "ci", Secret: "person"}, registration.Target{Organization: "acme", Group: "none"})
	require.NoError(t, err)
	_, err = person.Token(t.Context())
	require.ErrorIs(t, err, registration.ErrTarget)
	require.ErrorContains(t, err, `no runner group "none"`)
	require.NoError(t, in.Admin.RevokeToken(t.Context(), "person"))
	require.Equal(t, lifecycle.Unknown, person.Remove(t.Context(), registration.Subject{ID: 5, Name: "r-1"}).Verdict)
	_, err = person.Token(t.Context())
	require.ErrorIs(t, err, registration.ErrCredentials)
}
