package registrytest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/stretchr/testify/require"
)

const (
	service        = "registry.test"
	issuer         = "tokens.test"
	pusherPassword = "password of the pusher"
)

// TokenService gives tokens to users, as Docker Hub and GitHub's registry do (distribution's token specification). Anonymous
// clients get tokens for the public repositories only.
type TokenService struct {
	// Host is host:port, and Realm its URL.
	Host, Realm string

	users  map[string]User
	public []string
	key    jose.JSONWebKey

	mu       sync.Mutex
	replaced http.HandlerFunc
}

// Replace lets a handler respond instead; nil: the service again.
func (s *TokenService) Replace(handler http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced = handler
}

// User may pull from repositories.
type User struct {
	Password     string
	Repositories []string
}

// StartTokens runs a token service until the test ends.
func StartTokens(t testing.TB, users map[string]User, public ...string) *TokenService {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	s := &TokenService{users: users, public: public, key: jose.JSONWebKey{Key: private, Algorithm: string(jose.ES256), Use: "sig"}}
	thumbprint, err := s.key.Thumbprint(crypto.SHA256)
	require.NoError(t, err)
	s.key.KeyID = base64.RawURLEncoding.EncodeToString(thumbprint)
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	// By name: clients refuse token services with a private address in their URL.
	s.Host = strings.Replace(strings.TrimPrefix(server.URL, "http://"), "127.0.0.1", "localhost", 1)
	s.Realm = "http://" + s.Host + "/token"
	return s
}

func (s *TokenService) pusher() authn.Authenticator {
	return &authn.Basic{Username: "pusher", Password: pusherPassword}
}

func (s *TokenService) config(dir string) (string, error) {
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{s.key.Public()}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "jwks.json")
	text := fmt.Sprintf("auth:\n  token:\n    realm: %s\n    service: %s\n    issuer: %s\n    jwks: %s\n    signingalgorithms:\n      - ES256\n", s.Realm, service, issuer, file)
	return text, os.WriteFile(file, set, 0o600)
}

type access struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

func (s *TokenService) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	replaced := s.replaced
	s.mu.Unlock()
	if replaced != nil {
		replaced(w, r)
		return
	}
	name, password, given := r.BasicAuth()
	user := s.users[name]
	pusher := given && name == "pusher" && password == pusherPassword
	if given && !pusher && (user.Password == "" || user.Password != password) {
		http.Error(w, `{"details":"incorrect username or password"}`, http.StatusUnauthorized)
		return
	}
	granted := []access{}
	for _, scope := range r.URL.Query()["scope"] {
		parts := strings.Split(scope, ":")
		if len(parts) != 3 {
			continue
		}
		switch {
		case pusher:
			granted = append(granted, access{parts[0], parts[1], strings.Split(parts[2], ",")})
		case slices.Contains(s.public, parts[1]), slices.Contains(user.Repositories, parts[1]):
			granted = append(granted, access{parts[0], parts[1], []string{"pull"}})
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	now := time.Now()
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: issuer, Subject: name, Audience: jwt.Audience{service}, ID: "1",
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-time.Minute)), Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}).Claims(map[string]any{"access": granted}).Serialize()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 3600})
}
