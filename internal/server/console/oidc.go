package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// OIDC is how people log in at an identity provider by OpenID Connect. The issuer, the client, the claims and the prefixes mean what the flags of
// kube-apiserver of the same names mean, so that one person has one name in the cluster's roles whichever way they come.
type OIDC struct {
	Issuer   string // its URL, as its tokens name it
	ClientID string
	// Secret reads the client's secret, for every login again; nil: the client is public.
	Secret func() (string, error)
	// Console is the address at which browsers find the console, like https://bullpen.example.com; the provider sends them back there.
	Console string
	Name    string // of the provider, on the login page; default "single sign-on"
	// Scopes are asked for beside openid; default profile and email.
	Scopes []string
	Claims Claims
	// Life is how long a user stays logged in; default 4 h. The user's rights are checked with the cluster on every request; that the
	// provider has removed the user is noticed at the next login.
	Life time.Duration
	// Client reaches the provider; default: one that gives up after 10 s.
	Client *http.Client
}

const (
	pathOIDC     = "/ui/login/oidc"
	pathCallback = "/ui/login/oidc/callback"
)

const (
	loginCookie = "bullpen_login"
	loginLife   = 10 * time.Minute // for a user to find the second factor
	// discoverAgain is the minimum interval between requests to an unreachable provider: a login needs no authentication to begin.
	discoverAgain = 5 * time.Second
)

// provider is found when the first login needs it, so that a server starts without it.
type provider struct {
	opt OIDC
	now func() time.Time

	mu     sync.Mutex
	found  *oidc.Provider
	failed error
	until  time.Time // failed holds as long
}

func newProvider(opt OIDC, now func() time.Time) (*provider, error) {
	issuer, err := url.Parse(opt.Issuer)
	if err != nil || issuer.Scheme != "https" || issuer.Host == "" || issuer.RawQuery != "" || issuer.Fragment != "" {
		return nil, fmt.Errorf("invalid OpenID Connect issuer %q: expected an https URL without a query, such as https://login.example.com", opt.Issuer)
	}
	console, err := url.Parse(opt.Console)
	if err != nil || console.Host == "" || console.Scheme != "https" && console.Scheme != "http" || strings.Trim(console.Path, "/") != "" || console.RawQuery != "" {
		return nil, fmt.Errorf("invalid console URL %q: expected the URL to which the provider redirects browsers, such as https://bullpen.example.com", opt.Console)
	}
	if opt.ClientID == "" {
		return nil, errors.New("OpenID Connect requires the client ID of the provider")
	}
	if err := opt.Claims.check(); err != nil {
		return nil, err
	}
	opt.Name = cmp.Or(opt.Name, "single sign-on")
	opt.Life = cmp.Or(opt.Life, 4*time.Hour)
	if opt.Scopes == nil {
		opt.Scopes = []string{"profile", "email"}
	}
	if opt.Client == nil {
		opt.Client = &http.Client{Timeout: 10 * time.Second}
	}
	return &provider{opt: opt, now: now}, nil
}

// reportedError is an error that was returned, and logged, before.
type reportedError struct{ error }

// find asks the provider what it is, until it has answered once.
func (p *provider) find() (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	if p.now().Before(p.until) {
		return nil, &reportedError{p.failed}
	}
	// What is found keeps the context, and reads the provider's keys with it later on.
	found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), p.opt.Client), p.opt.Issuer)
	if err != nil {
		p.failed, p.until = fmt.Errorf("reading the identity provider's configuration: %w", err), p.now().Add(discoverAgain)
		return nil, p.failed
	}
	p.found = found
	return found, nil
}

func (p *provider) config(found *oidc.Provider) (*oauth2.Config, error) {
	secret := ""
	if p.opt.Secret != nil {
		var err error
		if secret, err = p.opt.Secret(); err != nil {
			return nil, fmt.Errorf("reading the client's secret: %w", err)
		}
	}
	return &oauth2.Config{
		ClientID: p.opt.ClientID, ClientSecret: secret, Endpoint: found.Endpoint(),
		RedirectURL: strings.TrimRight(p.opt.Console, "/") + pathCallback, Scopes: append([]string{oidc.ScopeOpenID}, p.opt.Scopes...),
	}, nil
}

// beginOIDC sends the browser to the provider. What proves later that this browser began it is in a cookie, sealed; the cookie is Lax, because the way back
// begins at another site.
func (c *Console) beginOIDC(w http.ResponseWriter, r *http.Request) {
	if inTheClear(r) {
		c.showLogin(w, r, http.StatusForbidden, "Your session would be sent unencrypted.")
		return
	}
	found, err := c.provider.find()
	if err != nil {
		c.providerFailed(w, r, err)
		return
	}
	config, err := c.provider.config(found)
	if err != nil {
		c.providerFailed(w, r, err)
		return
	}
	login := sealed{
		ID: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: within(r.URL.Query().Get("next")), Until: c.opt.Now().Add(loginLife),
	}
	value, err := c.seal.seal(forLogin, login)
	if err != nil || len(value) > maxCookie {
		c.showLogin(w, r, http.StatusBadRequest, "The URL of the previous page is too long to return to. Open the console's overview.")
		return
	}
	setLogin(w, r, value)
	http.Redirect(w, r, config.AuthCodeURL(login.ID, oidc.Nonce(login.Nonce), oauth2.S256ChallengeOption(login.Verifier)), http.StatusSeeOther)
}

func setLogin(w http.ResponseWriter, r *http.Request, value string) {
	cookie := &http.Cookie{
		Name: loginCookie, Value: value, Path: pathOIDC, MaxAge: int(loginLife / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: secure(r),
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// endOIDC trades what the provider sent the browser back with for a session.
func (c *Console) endOIDC(w http.ResponseWriter, r *http.Request) {
	cookie, err := r.Cookie(loginCookie)
	setLogin(w, r, "")
	login := sealed{}
	if err == nil {
		login, err = c.seal.open(forLogin, cookie.Value, c.opt.Now())
	}
	query := r.URL.Query()
	if err != nil || subtle.ConstantTimeCompare([]byte(login.ID), []byte(query.Get("state"))) != 1 {
		c.showLogin(w, r, http.StatusBadRequest, "This login was not started in this browser in the last minutes, or is already complete. Log in again.")
		return
	}
	if code := query.Get("error"); code != "" {
		c.opt.Log.InfoContext(r.Context(), "the identity provider rejected a login", "code", clip(code))
		c.showLogin(w, r, http.StatusForbidden, c.provider.opt.Name+" rejected the login: "+clip(cmp.Or(query.Get("error_description"), code)))
		return
	}
	user, err := c.provider.identify(r.Context(), query.Get("code"), login)
	var unfit *unfitError
	switch {
	case errors.As(err, &unfit):
		c.opt.Log.WarnContext(r.Context(), "rejected a login by its claims", "why", unfit.sentence)
		c.showLogin(w, r, http.StatusForbidden, unfit.sentence)
		return
	case err != nil:
		c.providerFailed(w, r, err)
		return
	}
	value, err := c.seal.seal(forSession, sealed{User: &user, Until: c.opt.Now().Add(c.provider.opt.Life)})
	if err != nil || len(value) > maxCookie {
		c.showLogin(w, r, http.StatusBadRequest, "You are in too many groups for a cookie. An administrator can list the groups to keep with --oidc-groups.")
		return
	}
	setSession(w, r, value, c.provider.opt.Life)
	// The session's cookie is Strict: a redirect, which belongs to the way from the other site, would not send it. A page of ours does.
	c.render(w, http.StatusOK, "welcome.html", shown{Title: "Logged in", Bare: true, Onward: login.Next, Data: login.Next})
}

// clip bounds what another writes.
func clip(text string) string {
	if len(text) > 200 {
		return strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}

func (c *Console) providerFailed(w http.ResponseWriter, r *http.Request, err error) {
	var reported *reportedError
	if !errors.As(err, &reported) {
		c.opt.Log.ErrorContext(r.Context(), "logging in by OpenID Connect", "error", safe(err))
	}
	c.showLogin(w, r, http.StatusBadGateway, "Logging in with "+c.provider.opt.Name+" failed. The server's log has the reason; logging in with a token still works.")
}

// safe omits the body of a provider's response: it may hold anything.
func safe(err error) string {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) {
		return fmt.Sprintf("the identity provider's token endpoint returned %s (%s)", refused.Response.Status, clip(refused.ErrorCode))
	}
	return err.Error()
}

// identify exchanges the code for a token, and the token for its user. *unfitError if its claims name no user here.
func (p *provider) identify(ctx context.Context, code string, login sealed) (admin.User, error) {
	found, err := p.find()
	if err != nil {
		return admin.User{}, err
	}
	config, err := p.config(found)
	if err != nil {
		return admin.User{}, err
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, p.opt.Client), code, oauth2.VerifierOption(login.Verifier))
	if err != nil {
		return admin.User{}, fmt.Errorf("exchanging the code for a token: %w", err)
	}
	text, ok := token.Extra("id_token").(string)
	if !ok {
		return admin.User{}, errors.New("the identity provider returned no ID token. Check that the client has the scope openid")
	}
	checked, err := found.Verifier(&oidc.Config{ClientID: p.opt.ClientID, Now: p.now}).Verify(ctx, text)
	if err != nil {
		return admin.User{}, fmt.Errorf("checking the ID token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(checked.Nonce), []byte(login.Nonce)) != 1 {
		return admin.User{}, errors.New("checking the ID token: it belongs to another login")
	}
	claims := map[string]any{}
	if err := checked.Claims(&claims); err != nil {
		return admin.User{}, fmt.Errorf("reading the ID token's claims: %w", err)
	}
	return p.opt.Claims.user(p.opt.Issuer, claims)
}
