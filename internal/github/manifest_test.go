package github

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func TestRegistrationPage_BelongsToTheAPI(t *testing.T) {
	for _, one := range []struct{ url, organization, page string }{
		{"https://github.com", "", "https://github.com/settings/apps/new"},
		{"https://github.com", "acme", "https://github.com/organizations/acme/settings/apps/new"},
		{"https://acme.ghe.com", "acme", "https://acme.ghe.com/organizations/acme/settings/apps/new"},
		{"https://ghes.example.com", "a/b", "https://ghes.example.com/organizations/a%2Fb/settings/apps/new"},
		{"https://ghes.example.com:8443/api/v3", "", "https://ghes.example.com:8443/settings/apps/new"},
	} {
		api, err := APIAddress(one.url)
		require.NoError(t, err)
		require.Equal(t, one.page, RegistrationPage(api, one.organization))
	}
}

func TestAppPermissions_AreDescribed(t *testing.T) {
	for _, permission := range AppPermissions() {
		require.NotEmpty(t, permission.Name)
		require.Contains(t, []string{"read", "write"}, permission.Level, permission.Name)
		require.NotEmpty(t, permission.Title, permission.Name)
		require.NotEmpty(t, permission.Use, permission.Name)
	}
}

// converting is a GitHub that answers each exchange of a code in the same way.
func converting(t *testing.T, status int, body any) (by Conversion, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		w.Header().Set("Location", "https://github.invalid/elsewhere")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(at.Close)
	return Conversion{API: at.URL + "/api/v3"}, asked
}

func TestConvertManifest_ReadsTheCredentials(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	by, asked := converting(t, http.StatusCreated, map[string]any{
		"id": 7, "slug": "bullpen-acme", "name": "Bullpen acme", "owner": map[string]any{"login": "acme"}, "client_id": "Iv23", "client_secret": "not kept",
		"html_url": "https://github.com/apps/bullpen-acme", "pem": text, "webhook_secret": "signs webhooks",
	})
	app, err := ConvertManifest(t.Context(), by, "a180b1a3d263c81bc6441d7b990bae27d4c10679")
	require.NoError(t, err)
	require.Equal(t, CreatedApp{
		ID: 7, Slug: "bullpen-acme", Name: "Bullpen acme", Owner: "acme", ClientID: "Iv23", HTMLURL: "https://github.com/apps/bullpen-acme",
		PrivateKey: fleet.NewSecret(text), WebhookSecret: fleet.NewSecret("signs webhooks"),
	}, app)
	require.Equal(t, []string{"POST /api/v3/app-manifests/a180b1a3d263c81bc6441d7b990bae27d4c10679/conversions"}, *asked)
	shown := fmt.Sprintf("%v %+v %#v", app, app, app)
	require.NotContains(t, shown, "PRIVATE KEY")
	require.NotContains(t, shown, "signs webhooks")
}

func TestConvertManifest_SaysWhatIsWrong(t *testing.T) {
	for name, one := range map[string]struct {
		status int
		body   any
		want   error
	}{
		"used or expired":    {http.StatusNotFound, map[string]string{"message": "Not Found"}, ErrManifestCode},
		"refused":            {http.StatusUnprocessableEntity, map[string]string{"message": "Validation Failed"}, fleet.ErrRejected},
		"down":               {http.StatusBadGateway, map[string]string{"message": "away"}, fleet.ErrUncertain},
		"a redirection":      {http.StatusFound, nil, fleet.ErrRejected},
		"no App":             {http.StatusCreated, map[string]any{}, fleet.ErrUncertain},
		"no key":             {http.StatusCreated, map[string]any{"id": 7, "pem": "-----BEGIN NONSENSE-----"}, fleet.ErrUncertain},
		"something else":     {http.StatusCreated, "a string", fleet.ErrUncertain},
		"accepted for later": {http.StatusAccepted, map[string]any{}, fleet.ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			by, asked := converting(t, one.status, one.body)
			_, err := ConvertManifest(t.Context(), by, "abc")
			require.ErrorIs(t, err, one.want)
			require.Len(t, *asked, 1)
		})
	}
}

// A code is a part of a path: what could leave it is not sent.
func TestConvertManifest_SendsNothingThatIsNoCode(t *testing.T) {
	by, asked := converting(t, http.StatusCreated, nil)
	for _, code := range []string{"", "../../user", "a b", "a?b", "a%2Fb", "a\n"} {
		_, err := ConvertManifest(t.Context(), by, code)
		require.ErrorIs(t, err, ErrManifestCode, code)
	}
	require.Empty(t, *asked)
}
