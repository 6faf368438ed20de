package standin

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// A job with the permission id-token: write gets tokens that prove to others what it is (OpenID Connect). Others find the key under the
// issuer's address, as with GitHub's.

const (
	pathIssuer  = "/_services/oidc"
	pathIDToken = pathIssuer + "/token"
	idTokenLife = 5 * time.Minute
)

// idTokenURL is where a job gets its tokens. Clients append "&audience=…".
func (s *Server) idTokenURL(j *job) string {
	return s.opts.URL + pathIDToken + "?job=" + j.guid
}

// issuerKey signs tokens of jobs. It is made at first use: most stand-ins never need it.
type issuerKey struct {
	once sync.Once
	key  *rsa.PrivateKey
	err  error
}

const issuerKeyID = "standin"

func (k *issuerKey) get() (*rsa.PrivateKey, error) {
	k.once.Do(func() { k.key, k.err = rsa.GenerateKey(rand.Reader, runnerKeyBits) })
	return k.key, k.err
}

func (s *Server) idTokenRoutes(mux *http.ServeMux) {
	s.protocol(mux, "GET "+pathIDToken, s.issueIDToken)
	mux.HandleFunc("GET "+pathIssuer+"/.well-known/openid-configuration", s.issuerConfiguration)
	mux.HandleFunc("GET "+pathIssuer+"/.well-known/jwks", s.issuerKeys)
}

func (s *Server) issueIDToken(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	key, err := s.issuer.get()
	if err != nil {
		return fmt.Errorf("making the issuer's key: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := token.job
	if j == nil || j.guid != r.URL.Query().Get("job") || j.state != jobInProgress || !j.idToken {
		return failf(http.StatusForbidden, "The job does not run, or does not have the permission id-token: write.")
	}
	signed := jwt.NewWithClaims(jwt.SigningMethodRS256, s.idClaimsLocked(j, r.URL.Query().Get("audience")))
	signed.Header["kid"] = issuerKeyID
	value, err := signed.SignedString(key)
	if err != nil {
		return fmt.Errorf("signing a token of job %d: %w", j.id, err)
	}
	writeJSON(w, http.StatusOK, map[string]any{"count": len(value), "value": value})
	return nil
}

func (s *Server) idClaimsLocked(j *job, audience string) jwt.MapClaims {
	now, r := s.now(), j.run
	ref := "refs/heads/" + r.branch
	file := r.repo.fullName() + "/.github/workflows/" + r.fileName + "@" + ref
	return jwt.MapClaims{
		"jti": s.guid(), "iss": s.opts.URL + pathIssuer, "aud": cmp.Or(audience, s.opts.URL+"/"+r.repo.owner.login),
		"sub": "repo:" + r.repo.fullName() + ":ref:" + ref,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(idTokenLife).Unix(),
		"ref": ref, "ref_type": "branch", "sha": r.sha, "event_name": r.event,
		"repository": r.repo.fullName(), "repository_id": strconv.FormatInt(r.repo.id, 10),
		"repository_owner": r.repo.owner.login, "repository_owner_id": strconv.FormatInt(r.repo.owner.id, 10),
		"run_id": strconv.FormatInt(r.id, 10), "run_number": strconv.FormatInt(r.number, 10), "run_attempt": strconv.Itoa(j.attempt),
		"workflow": r.workflowName, "workflow_ref": file, "job_workflow_ref": file, "runner_environment": "self-hosted",
	}
}

func (s *Server) issuerConfiguration(w http.ResponseWriter, _ *http.Request) {
	issuer := s.opts.URL + pathIssuer
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer": issuer, "jwks_uri": issuer + "/.well-known/jwks", "id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "scopes_supported": []string{"openid"},
	})
}

func (s *Server) issuerKeys(w http.ResponseWriter, _ *http.Request) {
	key, err := s.issuer.get()
	if err != nil {
		writeError(w, fmt.Errorf("making the issuer's key: %w", err))
		return
	}
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
		Key: &key.PublicKey, KeyID: issuerKeyID, Algorithm: "RS256", Use: "sig",
	}}})
}
