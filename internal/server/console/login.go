package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// maxLogin bounds the body of a login, in bytes.
const maxLogin = 32 << 10

// loginView is what the login page shows.
type loginView struct {
	Next, Problem, Audience string
	Provider, ProviderPath  string // its name, and where a login there begins; empty: there is none
	Clear                   bool   // a token must not be sent this way
	Host                    string // of the server, as the browser reaches it
}

// within returns where to go after a login: a page of the console, whatever was asked for.
func within(next string) string {
	at, err := url.Parse(next)
	if err != nil || at.IsAbs() || at.Host != "" || !strings.HasPrefix(at.Path, "/ui/") || strings.ContainsAny(next, "\\\n\r") ||
		strings.HasPrefix(at.Path, "/ui/log") || strings.HasPrefix(at.Path, "/ui/stream") {
		return "/ui/"
	}
	return next
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	c.showLogin(w, r, http.StatusOK, "")
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	next := r.URL.Query().Get("next")
	if r.Method == http.MethodPost {
		next = r.PostFormValue("next")
	}
	view := loginView{Next: within(next), Problem: problem, Audience: adminapi.Audience, Clear: inTheClear(r), Host: r.Host}
	if c.provider != nil {
		view.Provider, view.ProviderPath = c.provider.opt.Name, pathOIDC+"?next="+url.QueryEscape(view.Next)
	}
	tab := "Log in"
	if problem != "" {
		tab = "Error: " + tab
	}
	c.render(w, status, "login.html", shown{Title: "Log in", Tab: tab, Bare: true, Data: view})
}

// login exchanges a token, or a code that stands for one, for a session.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if err := r.ParseForm(); err != nil {
		c.showLogin(w, r, http.StatusBadRequest, "That is too long to be a token.")
		return
	}
	if inTheClear(r) {
		c.showLogin(w, r, http.StatusForbidden, "Your token would be sent in the clear.")
		return
	}
	token := strings.TrimSpace(r.PostFormValue("token"))
	if code := r.PostFormValue("code"); code != "" {
		content, err := c.seal.open(forCode, code, c.opt.Now())
		if err != nil || !c.codes.use(content.ID, content.Until, c.opt.Now()) {
			c.showLogin(w, r, http.StatusUnauthorized, "This link has expired or was used before. Run `bullpen console` again.")
			return
		}
		token = content.Token
	}
	if token == "" {
		c.showLogin(w, r, http.StatusBadRequest, "Paste a token.")
		return
	}
	name, err := c.known(r.Context(), caller{token: token})
	if err != nil {
		var refused *refusedError
		if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
			c.showLogin(w, r, http.StatusUnauthorized, "The cluster does not accept this token. Get a new one.")
			return
		}
		c.showLogin(w, r, http.StatusServiceUnavailable, "Kubernetes could not verify the token. Try again.")
		return
	}
	value, err := c.seal.seal(forSession, sealed{Token: token, Name: name, Until: c.opt.Now().Add(sessionLife)})
	if err != nil || len(value) > maxCookie {
		c.showLogin(w, r, http.StatusBadRequest, "This token is longer than a browser keeps. Log in with a token of a ServiceAccount.")
		return
	}
	setSession(w, r, value, sessionLife)
	http.Redirect(w, r, within(r.PostFormValue("next")), http.StatusSeeOther)
}

// known asks whose token the caller's is, whatever its user may do: a refusal to list jobs is an answer about a known user.
func (c *Console) known(ctx context.Context, who caller) (name string, err error) {
	var user admin.User
	err = ask(admin.Naming(ctx, &user), c.opt.Admission, who, reading(adminapi.PathJobs), nil)
	var refused *refusedError
	if errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		err = nil
	}
	return user.Name, err
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	setSession(w, r, "", 0)
	w.Header().Set("Clear-Site-Data", `"cache"`)
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
}

// issueCode answers a bearer token with a code. A page cannot ask for one: no page has the token.
func (c *Console) issueCode(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || len(token) > maxLogin {
		writeJSON(w, http.StatusUnauthorized, adminapi.Error{Error: "send a Kubernetes token as a bearer token; `bullpen console` does so by itself"})
		return
	}
	if _, err := c.known(r.Context(), caller{token: token}); err != nil {
		status, sentence := refusal(err)
		writeJSON(w, status, adminapi.Error{Error: sentence})
		return
	}
	code, err := c.seal.seal(forCode, sealed{Token: token, Until: c.opt.Now().Add(codeLife), ID: newCodeID()})
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, adminapi.Error{Error: "no code could be made"})
		return
	}
	writeJSON(w, http.StatusOK, adminapi.ConsoleCode{Code: code})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
