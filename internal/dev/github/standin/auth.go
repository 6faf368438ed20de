package standin

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// installationToken is what an App gets for one installation.
type installationToken struct {
	account *account
	expires time.Time
}

// runnerToken is what a runner gets for its registration, or with a job message for that job.
type runnerToken struct {
	runner  *runner
	job     *job // nil for a registration's token
	expires time.Time
}

// caller makes a REST call: the App itself, one of its installations, a person's token, or a runner that registers itself.
type caller struct {
	account      *account           // that it speaks for; nil for the App, and for a person's call that names none
	person       *personalToken     // whose token it is; nil for the App and its installations
	registration *registrationToken // of a runner that registers itself
}

func (c caller) name(appID int64) string {
	switch {
	case c.registration != nil:
		return "registration of " + c.registration.scope.path
	case c.person != nil:
		return "user " + c.person.Name
	case c.account == nil:
		return principalName("app", appID)
	}
	return principalName("installation", c.account.installation)
}

// isApp reports whether the App itself calls.
func (c caller) isApp() bool { return c.account == nil && c.person == nil && c.registration == nil }

// installation is that of the App's installations, else 0.
func (c caller) installation() int64 {
	if c.account == nil || c.person != nil || c.registration != nil {
		return 0
	}
	return c.account.installation
}

type authKind int

const (
	authApp          authKind = iota // an App JWT
	authInstallation                 // an installation's token, or a person's
	authAnyToken                     // either, or a registration token
	authRegistration                 // a registration token alone
	authNone                         // any client
)

func suspended() *apiError {
	return &apiError{
		status: http.StatusForbidden, Message: "This installation has been suspended",
		DocumentationURL: docsRoot + "/rest/reference/apps#create-an-installation-access-token-for-an-app",
	}
}

func badCredentials() *apiError {
	return &apiError{status: http.StatusUnauthorized, Message: "Bad credentials", DocumentationURL: docsRoot + "/rest"}
}

// bearer reads the credential of an Authorization header, whichever of GitHub's two schemes it uses.
func bearer(r *http.Request) string {
	scheme, value, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !ok || (!strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "token")) {
		return ""
	}
	return strings.TrimSpace(value)
}

func (s *Server) authenticate(r *http.Request, kind authKind) (caller, *apiError) {
	if kind == authNone {
		return caller{}, nil
	}
	if value := remoteAuth(r); value != "" && (kind == authAnyToken || kind == authRegistration) {
		return s.registrationCaller(value)
	}
	credential := bearer(r)
	if credential == "" || kind == authRegistration {
		return caller{}, badCredentials()
	}
	if kind == authApp {
		return caller{}, s.checkAppJWT(credential)
	}
	if strings.Count(credential, ".") == 2 {
		return caller{}, failf(http.StatusForbidden, "Resource not accessible by integration: this route needs an installation's token, not an App JWT")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if person := s.people[credential]; person != nil {
		return s.personLocked(r, person)
	}
	token, ok := s.appTokens[credential]
	if !ok || !s.now().Before(token.expires) {
		return caller{}, badCredentials()
	}
	return caller{account: token.account}, nil
}

// SetAppKeys replaces the App's keys, of which it may have several: JWTs signed by any of them are accepted from now on, and
// by no other. Tokens that exist stay valid, as on GitHub.
func (s *Server) SetAppKeys(keys ...*rsa.PublicKey) {
	set := jwt.VerificationKeySet{}
	for _, key := range keys {
		set.Keys = append(set.Keys, key)
	}
	s.appKeys.Store(&set)
}

// maxAppJWT is how far from now an App's JWT may end.
const maxAppJWT = 10 * time.Minute

// checkAppJWT is as strict as GitHub: an App's clock that is ahead issues JWTs in the future, and one that is behind such as have ended.
func (s *Server) checkAppJWT(credential string) *apiError {
	claims := jwt.RegisteredClaims{}
	_, err := jwt.ParseWithClaims(credential, &claims, func(*jwt.Token) (any, error) { return *s.appKeys.Load(), nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithTimeFunc(s.opts.Now),
		jwt.WithExpirationRequired())
	now := s.now()
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return failf(http.StatusUnauthorized, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case err != nil:
		return failf(http.StatusUnauthorized, "A JSON web token could not be decoded")
	case claims.Issuer != strconv.FormatInt(s.opts.AppID, 10):
		return failf(http.StatusUnauthorized, "'Issuer' claim ('iss') must be the App's id")
	case claims.IssuedAt == nil || claims.IssuedAt.After(now):
		return failf(http.StatusUnauthorized, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case claims.ExpiresAt.After(now.Add(maxAppJWT)):
		return failf(http.StatusUnauthorized, "'Expiration time' claim ('exp') is too far in the future")
	}
	return nil
}

func (s *Server) newInstallationTokenLocked(a *account) (string, time.Time) {
	value, expires := s.token("ghs_"), s.now().Add(s.opts.TokenLifetime)
	s.appTokens[value] = &installationToken{account: a, expires: expires}
	s.deadlineLocked(expires, func() { delete(s.appTokens, value) })
	s.markDirty()
	return value, expires
}

func (s *Server) newRunnerTokenLocked(rn *runner, j *job) string {
	value := s.token("rt_")
	lifetime := s.opts.TokenLifetime
	if j != nil {
		lifetime = max(lifetime, j.timeout+time.Hour)
	}
	expires := s.now().Add(lifetime)
	if j != nil {
		value = s.jobToken(j, expires)
	}
	s.runnerTokens[value] = &runnerToken{runner: rn, job: j, expires: expires}
	s.deadlineLocked(expires, func() { delete(s.runnerTokens, value) })
	s.markDirty()
	return value
}

// jobToken is a JWT, as a job's token is at GitHub: the runner reads which job it is for, and actions read where their artifacts belong. No
// client checks its signature; the stand-in compares the whole token.
func (s *Server) jobToken(j *job, expires time.Time) string {
	now := s.now()
	value, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"jti": s.guid(), "iat": now.Unix(), "nbf": now.Unix(), "exp": expires.Unix(),
		"orch_id": j.orchestration(),
		"scp":     "Actions.Results:" + j.run.planID + ":" + j.guid,
	}).SignedString(s.randomBytes(32))
	if err != nil { // an HMAC of what can be encoded
		panic(fmt.Sprintf("standin: signing a job's token: %v", err))
	}
	return value
}

// checkAssertion verifies a runner's client assertion against the key in its registration and returns the runner.
func (s *Server) checkAssertion(assertion, audience string) (*runner, error) {
	claims := jwt.RegisteredClaims{}
	var found *runner
	_, err := jwt.ParseWithClaims(assertion, &claims, func(*jwt.Token) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		rn, ok := s.clients[claims.Issuer]
		if !ok {
			return nil, fmt.Errorf("no registration has the client id %q", claims.Issuer)
		}
		found = rn
		return rn.key, nil
	}, jwt.WithValidMethods([]string{"RS256", "PS256"}), jwt.WithTimeFunc(s.opts.Now), jwt.WithLeeway(5*time.Minute),
		jwt.WithExpirationRequired(), jwt.WithAudience(audience))
	if err != nil {
		return nil, fmt.Errorf("checking the client assertion: %w", err)
	}
	if claims.Subject != claims.Issuer {
		return nil, fmt.Errorf("checking the client assertion: its subject is not its issuer")
	}
	return found, nil
}
