package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

const (
	assertionLife = 5 * time.Minute
	// tokenMargin is how long before its end a token is replaced.
	tokenMargin = time.Minute
)

// tokens trades the runner's key for access tokens and keeps the current one. It is safe for concurrent use.
type tokens struct {
	config *Config
	http   *http.Client
	now    func() time.Time

	mu      sync.Mutex
	current string
	expires time.Time
}

// token returns a token that is valid for a while yet.
func (t *tokens) token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != "" && t.now().Before(t.expires) {
		return t.current, nil
	}
	answer, err := t.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("fetching an access token: %w", err)
	}
	life := time.Duration(answer.ExpiresIn) * time.Second
	t.current, t.expires = answer.AccessToken, t.now().Add(max(life-tokenMargin, life/2))
	return t.current, nil
}

// forget drops a token that was refused, unless it has been replaced in between.
func (t *tokens) forget(refused string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == refused {
		t.current = ""
	}
}

// refresh drops the current token.
func (t *tokens) refresh() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = ""
}

type tokenAnswer struct {
	AccessToken string `json:"access_token"`
	ExpiresIn   int64  `json:"expires_in"`
	Error       string `json:"error"`
}

func (t *tokens) fetch(ctx context.Context) (*tokenAnswer, error) {
	assertion, err := t.assertion()
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type":            {"client_credentials"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		"client_assertion":      {assertion},
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.config.authorizationURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	res, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	var answer tokenAnswer
	_ = json.Unmarshal(body, &answer) // an answer that is no JSON has no token, which is an error below
	switch answer.Error {
	case "invalid_client", "invalid_grant", "unauthorized_client":
		return nil, fmt.Errorf("%w: the token service answers %s", errRemoved, answer.Error)
	}
	if res.StatusCode != http.StatusOK || answer.AccessToken == "" {
		return nil, &apiError{Status: res.StatusCode, Kind: answer.Error}
	}
	return &answer, nil
}

// assertion signs who we are. The V2 services want PSS padding; this runner speaks to no others.
func (t *tokens) assertion() (string, error) {
	now := t.now()
	claims := jwt.RegisteredClaims{
		Issuer: t.config.clientID, Subject: t.config.clientID, Audience: jwt.ClaimStrings{t.config.authorizationURL},
		ID: uuid.NewString(), NotBefore: jwt.NewNumericDate(now.Add(-30 * time.Second)), IssuedAt: jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(assertionLife)),
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodPS256, claims).SignedString(t.config.key)
	if err != nil {
		return "", fmt.Errorf("signing the client assertion: %w", err)
	}
	return signed, nil
}
