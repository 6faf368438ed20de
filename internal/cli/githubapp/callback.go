package githubapp

import (
	"bytes"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/github"
)

const (
	pathStart    = "/start/"
	pathCallback = "/callback"
	cookieName   = "bullpen_github_app"
)

// callback serves the two pages of one registration: the start page, which posts the manifest to GitHub, and the page that GitHub redirects
// the browser back to. Both are for one browser: the first that opens the start page gets a cookie, without which no other gets the form with
// the state, or may return a code. So neither a page of the web nor another user of this machine can slip in an App of theirs.
type callback struct {
	address       string // the listener's; no other Host is served
	key           string // in the path of the start page
	cookie, state string
	start         startData
	warn          func(format string, args ...any)

	codes chan string // takes one
	done  chan struct{}

	mu     sync.Mutex
	opened bool
	taken  bool
	end    endData
	status int
}

// newCallback prepares the pages. random is a source that cannot be guessed.
func newCallback(o Options, address string) (*callback, error) {
	c := &callback{address: address, warn: o.say, codes: make(chan string, 1), done: make(chan struct{})}
	for _, into := range []*string{&c.key, &c.cookie, &c.state} {
		raw := make([]byte, 24)
		if _, err := io.ReadFull(o.Random, raw); err != nil {
			return nil, fmt.Errorf("making a random number: %w", err)
		}
		*into = base64.RawURLEncoding.EncodeToString(raw)
	}
	site := github.WebAddress(o.API)
	m := o.App.manifest(site, "http://"+address+pathCallback)
	encoded, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	c.start = startData{
		Site: site, Action: github.RegistrationPage(o.API, o.App.Organization) + "?" + url.Values{"state": {c.state}}.Encode(), Manifest: string(encoded),
		Owner: o.App.Organization, Name: m.Name, Webhook: o.App.WebhookURL, Public: m.Public, Events: m.Events,
	}
	for _, permission := range github.AppPermissions() {
		c.start.Permissions = append(c.start.Permissions, permissionRow{permission.Title, m.Permissions[permission.Name], permission.Use})
	}
	return c, nil
}

func (c *callback) startURL() string { return "http://" + c.address + pathStart + c.key }

func (c *callback) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStart+"{key}", c.serveStart)
	mux.HandleFunc("GET "+pathCallback, c.serveCallback)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "strict-origin") // GitHub sees where the form comes from, and not its path
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Host != c.address { // DNS of another site may point here
			http.Error(w, "open the URL that the command has printed", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// known reports whether the request is of the browser that opened the start page first.
func (c *callback) known(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	return err == nil && same(cookie.Value, c.cookie)
}

func (c *callback) serveStart(w http.ResponseWriter, r *http.Request) {
	if !same(r.PathValue("key"), c.key) {
		http.NotFound(w, r)
		return
	}
	c.mu.Lock()
	first := !c.opened
	c.opened = true
	c.mu.Unlock()
	if !first && !c.known(r) {
		show(w, http.StatusForbidden, endPage, endData{
			Title: "This link was opened already", Message: "It works in the browser that opened it first. If that was not yours, stop the command with Ctrl-C and run it again.",
		})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: c.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}) // Lax: GitHub redirects back
	show(w, http.StatusOK, startPage, c.start)
}

// serveCallback takes the code, once, and answers when it is known what became of it.
func (c *callback) serveCallback(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if !c.known(r) || !same(query.Get("state"), c.state) {
		c.warn("Ignored a callback that does not belong to this registration: its state or its browser is another. Still waiting.\n")
		show(w, http.StatusForbidden, endPage, endData{
			Title: "Not the registration that was started", Message: "The state does not match. Open the URL that the command has printed, and create the App from there.",
		})
		return
	}
	code := query.Get("code")
	if !github.ValidManifestCode(code) {
		c.warn("Ignored a callback without a valid code. Still waiting.\n")
		show(w, http.StatusBadRequest, endPage, endData{Title: "No valid code", Message: "GitHub sent no code that can be used. Open the URL that the command has printed again."})
		return
	}
	c.mu.Lock()
	if !c.taken {
		c.taken = true
		c.codes <- code // which has room for one
	}
	c.mu.Unlock()
	select {
	case <-c.done:
		c.mu.Lock()
		status, end := c.status, c.end
		c.mu.Unlock()
		show(w, status, endPage, end)
	case <-r.Context().Done():
	}
}

// finish sends the result to the browser. It is called once.
func (c *callback) finish(result Result, err error) {
	c.mu.Lock()
	c.status, c.end = http.StatusOK, endData{
		Title: "The GitHub App was created", Message: fmt.Sprintf("%s (App ID %d). Its credentials are in %s.", result.Name, result.ID, result.StoredIn),
		Link: result.InstallURL, LinkText: "Install it now",
	}
	if err != nil {
		c.status, c.end = http.StatusBadGateway, endData{Title: "The registration failed", Message: "The command says why: " + err.Error()}
	}
	c.mu.Unlock()
	close(c.done)
}

// show writes a page. A template that fails has written nothing yet.
func show(w http.ResponseWriter, status int, page *template.Template, data any) {
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the browser may have gone
}
