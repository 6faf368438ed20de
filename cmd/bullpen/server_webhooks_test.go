package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// A webhook that is set on an organization names no installation. The server asks GitHub, as the App, whether it is installed there.
func TestServer_R14_AnOrganizationsWebhookIsServed(t *testing.T) {
	hub, err := standin.Start(t.Context(), standin.Options{
		Installations: []standin.Installation{
			{Account: "acme", Repositories: []string{"app"}},
			{Account: "ada", Type: "User", Repositories: []string{"app"}},
		},
	})
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	r := wired(t, func(cfg *serverConfig, file func(name, content string) string) {
		cfg.github.url = hub.URL + "/api/v3"
		cfg.keyFile = file("app.pem", string(hub.AppKeyPEM))
		cfg.webhooks.mode = webhooksPush
		cfg.webhooks.secretFile = file("webhook-secret", "secret")
	})
	public := r.http.Public()
	post := func(job int, owner, kind string) (int, string) {
		body := fmt.Sprintf(`{"action":"queued","workflow_job":{"id":%d,"run_id":9,"name":"build","labels":["linux"]},
			"repository":{"id":7,"full_name":"%s/app","owner":{"id":%d,"login":%q,"type":%q}}}`, job, owner, job, owner, kind)
		request := httptest.NewRequest(http.MethodPost, "/webhooks/github", strings.NewReader(body))
		request.Header.Set(github.HeaderSignature, github.Sign("secret", []byte(body)))
		request.Header.Set(github.HeaderEvent, "workflow_job")
		request.Header.Set(github.HeaderDelivery, fmt.Sprint("delivery-", job))
		answer := httptest.NewRecorder()
		public.ServeHTTP(answer, request)
		return answer.Code, answer.Body.String()
	}
	for job, owner := range map[int]string{1: "acme", 2: "ada"} {
		kind := map[string]string{"acme": "Organization", "ada": "User"}[owner]
		status, text := post(job, owner, kind)
		require.Equal(t, http.StatusOK, status, text)
		account, err := r.store.Account(t.Context(), owner)
		require.NoError(t, err)
		require.NotZero(t, account.InstallationID)
	}
	status, text := post(3, "stranger", "Organization")
	require.Equal(t, http.StatusAccepted, status)
	require.Contains(t, text, "not installed at stranger")
}
