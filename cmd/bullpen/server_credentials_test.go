package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// gauges are what the server exports of one metric, by its first label.
func (r *replica) gauges(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := r.registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			got[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return got
}

// NET-6: the files of the webhook secrets are read again by the server that verifies with them, without a restart.
func TestServer_NET6_WebhookSecretsFollowTheirFiles(t *testing.T) {
	var current, previous string
	r := wired(t, func(cfg *serverConfig, file func(name, content string) string) {
		cfg.webhooks.mode = webhooksPush
		current = file("webhook-secret", "old\n")
		cfg.webhooks.secretFile = current
		previous = current + "-previous"
		cfg.webhooks.previousFile = previous
	})
	public := r.http.Public()
	ping := func(secret string) int {
		const body = `{"zen":"x"}`
		request := httptest.NewRequest(http.MethodPost, "/webhooks/github", strings.NewReader(body))
		request.Header.Set(github.HeaderSignature, github.Sign(secret, []byte(body)))
		request.Header.Set(github.HeaderEvent, "ping")
		request.Header.Set(github.HeaderDelivery, "72d3162e-cc78-11e3-81ab-4c9367dc0958")
		answer := httptest.NewRecorder()
		public.ServeHTTP(answer, request)
		return answer.Code
	}
	require.Equal(t, http.StatusOK, ping("old"))
	require.Equal(t, http.StatusUnauthorized, ping("new"))

	require.NoError(t, os.WriteFile(previous, []byte("old\n"), 0o600))
	require.NoError(t, os.WriteFile(current, []byte("new\n"), 0o600))
	r.credentials.Look(t.Context())
	require.Equal(t, http.StatusOK, ping("old"))
	require.Equal(t, http.StatusOK, ping("new"))
	require.Equal(t, map[string]float64{"current": 2, "previous": 1}, r.gauges(t, "bullpen_webhook_signatures_total"))

	require.NoError(t, os.WriteFile(current, []byte("\n"), 0o600)) // an administrator's mistake
	require.NoError(t, os.Remove(previous))
	r.credentials.Look(t.Context())
	require.Equal(t, http.StatusOK, ping("new"))
	require.Equal(t, http.StatusUnauthorized, ping(""))
	require.EqualValues(t, 1, r.gauges(t, "bullpen_credential_refused")["webhook_secret"])

	require.NoError(t, os.WriteFile(current, []byte("new\n"), 0o600))
	r.credentials.Look(t.Context())
	require.Equal(t, http.StatusUnauthorized, ping("old"), "the rotation is over")
	require.Equal(t, http.StatusOK, ping("new"))
	require.Zero(t, r.gauges(t, "bullpen_credential_refused")["webhook_secret"])
}

// The App's key follows its file, if GitHub knows it.
func TestServer_PrivateKeyFollowsItsFile(t *testing.T) {
	hub, err := standin.Start(t.Context(), standin.Options{})
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	var key string
	r := wired(t, func(cfg *serverConfig, file func(name, content string) string) {
		cfg.github.url = hub.URL + "/api/v3"
		key = file("app.pem", string(hub.AppKeyPEM))
	})
	refused := func() float64 {
		r.credentials.Look(t.Context())
		return r.gauges(t, "bullpen_credential_refused")["github_private_key"]
	}
	works := func() bool { _, err := r.forge.Installations(t.Context()); return err == nil }
	require.Zero(t, refused())
	require.True(t, works())

	public, other, err := standin.GenerateAppKey()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, other[:len(other)/2], 0o600))
	require.EqualValues(t, 1, refused())
	require.True(t, works())
	require.NoError(t, os.WriteFile(key, other, 0o600))
	require.EqualValues(t, 1, refused(), "GitHub does not know it")
	require.True(t, works())

	first, err := standin.ParseAppKey(hub.AppKeyPEM)
	require.NoError(t, err)
	_, third, err := standin.GenerateAppKey()
	require.NoError(t, err)
	second, err := standin.ParseAppKey(third)
	require.NoError(t, err)
	hub.SetAppKeys(first, public, second)
	require.NoError(t, os.WriteFile(key, third, 0o600))
	require.Zero(t, refused())
	hub.SetAppKeys(second)
	require.True(t, works())
}
