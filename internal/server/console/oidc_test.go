package console_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/console"
)

func cookieOf(t *testing.T, resp *http.Response, name string) *http.Cookie {
	t.Helper()
	for _, cookie := range resp.Cookies() {
		if cookie.Name == name {
			return cookie
		}
	}
	require.Fail(t, "no cookie", name)
	return nil
}

// begun is a login that a browser has begun.
type begun struct {
	cookie *http.Cookie
	at     *url.URL // where the provider is asked
}

func (d *desk) begin(next string) begun {
	d.t.Helper()
	resp := d.ask("GET", "/ui/login/oidc?next="+url.QueryEscape(next), "", "")
	require.Equal(d.t, http.StatusSeeOther, resp.StatusCode)
	at, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(d.t, err)
	return begun{cookieOf(d.t, resp, "bullpen_login"), at}
}

// back is the query that the provider sends the browser back with.
func (p *provider) back(b begun) url.Values {
	p.t.Helper()
	client := *p.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Get(b.at.String())
	require.NoError(p.t, err)
	defer resp.Body.Close()
	require.Equal(p.t, http.StatusFound, resp.StatusCode)
	at, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(p.t, err)
	require.Equal(p.t, "/ui/login/oidc/callback", at.Path)
	return at.Query()
}

func (d *desk) end(query url.Values, cookie *http.Cookie) *http.Response {
	d.t.Helper()
	return d.ask("GET", "/ui/login/oidc/callback?"+query.Encode(), "", "", func(r *http.Request) {
		if cookie != nil {
			r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
		}
	})
}

func hasSession(resp *http.Response) bool {
	for _, cookie := range resp.Cookies() {
		if cookie.Name == "bullpen_session" && cookie.Value != "" {
			return true
		}
	}
	return false
}

// A user comes from the provider, is authorized by the name and groups of the claims, and is the author of changes in the audit log.
func TestOIDC_LogsIn(t *testing.T) {
	p := newProvider(t)
	d := inhabited(t, p.options())
	d.cluster.set(func(c *cluster) {
		c.people = map[string]bool{"ada@example.com oidc:platform,oidc:everybody,system:authenticated": true}
	})
	login := body(t, d.ask("GET", "/ui/login?next=/ui/jobs/7", "", ""))
	require.Contains(t, login, `href="/ui/login/oidc?next=%2Fui%2Fjobs%2F7">Log in with Example SSO</a>`)

	began := d.begin("/ui/accounts/acme")
	require.True(t, began.cookie.HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, began.cookie.SameSite)
	require.Equal(t, "/ui/login/oidc", began.cookie.Path)
	require.Equal(t, d.url+"/ui/login/oidc/callback", began.at.Query().Get("redirect_uri"))
	require.Equal(t, "openid profile email", began.at.Query().Get("scope"))
	for _, secret := range []string{began.at.Query().Get("state"), began.at.Query().Get("nonce")} {
		require.NotEmpty(t, secret)
		require.NotContains(t, began.cookie.Value, secret)
	}
	resp := d.end(p.back(began), began.cookie)
	text := body(t, resp)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	require.Contains(t, text, `<meta http-equiv="refresh" content="0; url=/ui/accounts/acme">`)
	require.Equal(t, -1, cookieOf(t, resp, "bullpen_login").MaxAge, "it is over")
	session := cookieOf(t, resp, "bullpen_session")
	require.Equal(t, http.SameSiteStrictMode, session.SameSite)
	require.Equal(t, 4*3600, session.MaxAge)

	require.Equal(t, http.StatusOK, d.ask("GET", "/ui/accounts/acme", session.Value, "").StatusCode)
	const path = "/ui/accounts/acme/suspend"
	require.Equal(t, http.StatusSeeOther, d.ask("POST", path, session.Value, d.form(path, session.Value).Encode()).StatusCode)
	require.Equal(t, []string{"ada@example.com", "oidc:1234"}, []string{d.lastEvent().Actor, d.lastEvent().Credential})
	d.tell(fleet.JobEventQueued, 17)
	require.Contains(t, d.watch("/ui/jobs", session.Value).next("page"), "build-17")

	d.cluster.set(func(c *cluster) { c.people = nil })
	require.Equal(t, http.StatusForbidden, d.ask("GET", "/ui/accounts/acme", session.Value, "").StatusCode, "the cluster is asked all the time")
}

// NET-5: a request cannot name its user: headers name none, and a session of the provider's is valid only where users log in there.
func TestOIDC_NET5_NobodyNamesThemselves(t *testing.T) {
	p := newProvider(t)
	d := newDesk(t, p.options())
	d.cluster.set(func(c *cluster) {
		c.people = map[string]bool{"ada@example.com oidc:platform,oidc:everybody,system:authenticated": true}
	})
	began := d.begin("/ui/")
	session := cookieOf(t, d.end(p.back(began), began.cookie), "bullpen_session").Value
	for _, header := range []string{"X-Remote-User", "Impersonate-User", "X-Forwarded-User", "Authorization"} {
		resp := d.ask("GET", "/ui/jobs", "", "", func(r *http.Request) { r.Header.Set(header, "ada@example.com") })
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, header)
	}
	require.Equal(t, http.StatusSeeOther, d.ask("GET", "/ui/jobs", began.cookie.Value, "").StatusCode, "a login that has begun is no session")
	without := newDesk(t)
	without.cluster.set(func(c *cluster) {
		c.people = map[string]bool{"ada@example.com oidc:platform,oidc:everybody,system:authenticated": true}
	})
	require.Equal(t, http.StatusSeeOther, without.ask("GET", "/ui/jobs", session, "").StatusCode, "the provider was taken away")
	require.Equal(t, http.StatusNotFound, without.ask("GET", "/ui/login/oidc", "", "").StatusCode)
	require.NotContains(t, body(t, without.ask("GET", "/ui/login", "", "")), "Log in with")
}

// A callback that does not belong to the login that this browser began, or a token that the provider did not sign for us now, logs no user
// in.
func TestOIDC_WhatDoesNotFitLogsNobodyIn(t *testing.T) {
	now := time.Now()
	p := newProvider(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	claim := func(name string, value any) func() {
		return func() { p.set(func(p *provider) { p.claims = map[string]any{name: value} }) }
	}
	d := newDesk(t, p.options(), func(o *console.Options) { o.Now = func() time.Time { return now } })
	for name, c := range map[string]struct {
		before func()                   // it is begun
		change func(url.Values, *begun) // what comes back
		status int
		says   string
	}{
		"another state":           {nil, func(q url.Values, _ *begun) { q.Set("state", "x") }, 400, "not started in this browser"},
		"no state":                {nil, func(q url.Values, _ *begun) { q.Del("state") }, 400, "not started in this browser"},
		"another browser":         {nil, func(_ url.Values, b *begun) { b.cookie = nil }, 400, "not started in this browser"},
		"another login's state":   {nil, func(_ url.Values, b *begun) { b.cookie = d.begin("/ui/").cookie }, 400, "not started in this browser"},
		"a session's cookie":      {nil, func(_ url.Values, b *begun) { b.cookie.Value = d.session(adas) }, 400, "not started in this browser"},
		"ten minutes later":       {nil, func(url.Values, *begun) { now = now.Add(10 * time.Minute) }, 400, "not started in this browser"},
		"another code":            {nil, func(q url.Values, _ *begun) { q.Set("code", "x") }, 502, "a token still works"},
		"a code of another login": {nil, func(q url.Values, _ *begun) { q.Set("code", p.back(d.begin("/ui/")).Get("code")) }, 502, "a token still works"},
		"refused":                 {nil, func(q url.Values, _ *begun) { q.Set("error", "access_denied"); q.Set("error_description", hostile) }, 403, "&lt;script&gt;"},
		"another nonce":           {claim("nonce", "x"), nil, 502, "a token still works"},
		"another audience":        {claim("aud", "another-client"), nil, 502, "a token still works"},
		"another issuer":          {claim("iss", "https://evil.example"), nil, 502, "a token still works"},
		"over":                    {claim("exp", now.Add(-time.Minute).Unix()), nil, 502, "a token still works"},
		"another key":             {func() { p.set(func(p *provider) { p.token = p.sign(jose.ES256, other) }) }, nil, 502, "a token still works"},
		"a shared key": {func() {
			p.set(func(p *provider) { p.token = p.sign(jose.HS256, []byte("the client's secret, as long as it takes")) })
		}, nil, 502, "a token still works"},
		"no signature":    {func() { p.set(func(p *provider) { p.token = unsigned }) }, nil, 502, "a token still works"},
		"no token":        {func() { p.set(func(p *provider) { p.token = func(map[string]any) string { return "" } }) }, nil, 502, "a token still works"},
		"unverified":      {claim("email_verified", false), nil, 403, "not verified"},
		"of the system":   {claim("email", "system:admin"), nil, 403, "is reserved for Kubernetes"},
		"too many groups": {claim("groups", strings.Split(strings.Repeat("0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f ", 200), " ")), nil, 400, "--oidc-groups"},
	} {
		t.Run(name, func(t *testing.T) {
			p.set(func(p *provider) { p.claims, p.token = nil, p.sign(jose.ES256, p.key) })
			if c.before != nil {
				c.before()
			}
			began := d.begin("/ui/jobs")
			query := p.back(began)
			if c.change != nil {
				c.change(query, &began)
			}
			resp := d.end(query, began.cookie)
			require.Equal(t, c.status, resp.StatusCode)
			text := body(t, resp)
			require.Contains(t, text, c.says)
			require.NotContains(t, text, "<script>alert")
			require.False(t, hasSession(resp))
		})
	}
	p.set(func(p *provider) { p.claims, p.token = nil, p.sign(jose.ES256, p.key) })
	began := d.begin("/ui/")
	query := p.back(began)
	require.True(t, hasSession(d.end(query, began.cookie)), "what fits does")
	require.False(t, hasSession(d.end(query, began.cookie)), "and not twice: the provider trades a code once")

	for _, next := range []string{"https://evil.example/ui/", "//evil.example/", "/ui/../\\evil.example", "/api/v1/jobs"} {
		began := d.begin(next)
		require.Contains(t, body(t, d.end(p.back(began), began.cookie)), `content="0; url=/ui/"`, next)
	}
	require.Equal(t, http.StatusForbidden, d.ask("GET", "/ui/login/oidc", "", "", func(r *http.Request) { r.Host = "bullpen.example.com" }).StatusCode, "in the clear")
}

// A provider that is not there keeps no server from starting and no token from logging in; it is asked again soon, and not for every click.
func TestOIDC_AProviderThatIsDown(t *testing.T) {
	now := time.Now()
	p := newProvider(t)
	p.set(func(p *provider) { p.down = true })
	var log bytes.Buffer
	d := newDesk(t, p.options(), func(o *console.Options) {
		o.Now = func() time.Time { return now }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 10 {
		resp := d.ask("GET", "/ui/login/oidc", "", "")
		require.Equal(t, http.StatusBadGateway, resp.StatusCode)
		require.Contains(t, body(t, resp), "a token still works")
	}
	require.Equal(t, 1, p.asked)
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
	require.NotEmpty(t, d.session(adas))
	p.set(func(p *provider) { p.down = false })
	now = now.Add(5 * time.Second)
	began := d.begin("/ui/")
	require.Equal(t, 2, p.asked)
	query := p.back(began)
	query.Set("code", "wrong")
	require.Equal(t, http.StatusBadGateway, d.end(query, began.cookie).StatusCode)
	require.Contains(t, log.String(), "returned 400 Bad Request (invalid_grant)")
	for _, secret := range []string{clientSecret, "secret details", "wrong"} {
		require.NotContains(t, log.String(), secret)
	}
	d.begin("/ui/")
	require.Equal(t, 2, p.asked, "it is known now")
}

// Wrong settings are reported at start; an unreadable secret, at login.
func TestOIDC_BadSettings(t *testing.T) {
	p := newProvider(t)
	for says, change := range map[string]func(*console.OIDC){
		"an https URL without a query": func(o *console.OIDC) { o.Issuer = "http://login.example.com" },
		"invalid console URL":          func(o *console.OIDC) { o.Console = "bullpen.example.com" },
		"requires the client ID":       func(o *console.OIDC) { o.ClientID = "" },
		"is reserved for Kubernetes":   func(o *console.OIDC) { o.Claims.UsernamePrefix = "system:" },
	} {
		opt := console.Options{API: http.NotFoundHandler(), Admission: http.NotFoundHandler(), Secret: []byte("a secret that every replica has")}
		p.options(change)(&opt)
		_, err := console.New(opt)
		require.ErrorContains(t, err, says)
	}
	d := newDesk(t, p.options(func(o *console.OIDC) { o.Secret = func() (string, error) { return "", errors.New("no such file") } }))
	require.Equal(t, http.StatusBadGateway, d.ask("GET", "/ui/login/oidc", "", "").StatusCode)
}

// In a genuine browser, from the login page to the page that was asked for: the Strict cookie arrives although the way came from another site.
func TestConsole_LogsInAtAProvider(t *testing.T) {
	p := newProvider(t)
	d := newDesk(t, p.options())
	d.cluster.set(func(c *cluster) {
		c.people = map[string]bool{"ada@example.com oidc:platform,oidc:everybody,system:authenticated": true}
	})
	d.tell(fleet.JobEventQueued, 7)
	b := newBrowser(t, d, 1280, 900, chromedp.IgnoreCertErrors) // the provider's certificate is the test's
	b.open("/ui/jobs/7")
	b.picture("login-sso")
	b.keys("a.strong", kb.Enter)
	b.shows("#why")
	require.Equal(t, "/ui/jobs/7", eval[string](b, `location.pathname`))
	require.Contains(t, b.text(), "build-7")
	b.live()
	b.content()
}
