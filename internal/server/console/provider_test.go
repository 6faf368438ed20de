package console_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/console"
)

// provider is an identity provider as OpenID Connect has it: it is discovered, logs one person in without a prompt, and exchanges each code
// once, for a client with the client's secret and the code's verifier.
type provider struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu     sync.Mutex
	down   bool
	asked  int            // for what it is
	claims map[string]any // of the next ID token, over the usual ones
	token  func(claims map[string]any) string
	codes  map[string]grant
}

// grant is what a code was given for.
type grant struct{ nonce, challenge, redirect string }

const clientSecret = "the client's secret"

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	p := &provider{t: t, key: key, codes: map[string]grant{}}
	p.token = p.sign(jose.ES256, key)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.trade)
	p.server = httptest.NewTLSServer(mux)
	t.Cleanup(p.server.Close)
	return p
}

func (p *provider) set(change func(p *provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *provider) answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (p *provider) discovery(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.down {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	p.answer(w, map[string]any{
		"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/authorize", "token_endpoint": p.server.URL + "/token",
		"jwks_uri": p.server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func (p *provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != "bullpen" || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "not a request for a code with a challenge", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.set(func(p *provider) {
		p.codes[code] = grant{nonce: q.Get("nonce"), challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri")}
	})
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *provider) trade(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if decoded, err := url.QueryUnescape(secret); err == nil {
		secret = decoded
	}
	given, known := p.codes[r.PostFormValue("code")]
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if id != "bullpen" || secret != clientSecret || !known || given.redirect != r.PostFormValue("redirect_uri") || given.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		p.answer(w, map[string]string{"error": "invalid_grant", "error_description": "secret details"})
		return
	}
	delete(p.codes, r.PostFormValue("code"))
	claims := map[string]any{
		"iss": p.server.URL, "aud": "bullpen", "sub": "1234", "nonce": given.nonce, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
		"email": "ada@example.com", "email_verified": true, "groups": []string{"platform", "everybody"},
	}
	for name, value := range p.claims {
		claims[name] = value
	}
	p.answer(w, map[string]any{"access_token": "an access token", "token_type": "Bearer", "id_token": p.token(claims)})
}

func (p *provider) sign(algorithm jose.SignatureAlgorithm, key any) func(map[string]any) string {
	return func(claims map[string]any) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
		require.NoError(p.t, err)
		text, err := json.Marshal(claims)
		require.NoError(p.t, err)
		signed, err := signer.Sign(text)
		require.NoError(p.t, err)
		token, err := signed.CompactSerialize()
		require.NoError(p.t, err)
		return token
	}
}

// unsigned is a token that says it needs no signature.
func unsigned(claims map[string]any) string {
	text, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(text) + "."
}

// options have a console trust the provider; the console's own address is put in when it is known.
func (p *provider) options(change ...func(*console.OIDC)) func(*console.Options) {
	return func(o *console.Options) {
		o.OIDC = &console.OIDC{
			Issuer: p.server.URL, ClientID: "bullpen", Secret: func() (string, error) { return clientSecret, nil }, Name: "Example SSO",
			Client: p.server.Client(), Claims: console.Claims{Username: "email", Groups: "groups", GroupsPrefix: "oidc:"}, Console: "http://127.0.0.1",
		}
		for _, c := range change {
			c(o.OIDC)
		}
	}
}
