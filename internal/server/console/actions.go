package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// action is something that a visitor can do: a form at its URL, which is posted to the same URL. A form belongs to one session, so it is
// never a live page, which all its viewers share.
type action struct {
	pattern  string // of its path
	template string
	nav      string // which entry of the menu it belongs to
	// means is the request to the admin API that the form makes, without a body: a user without that right sees no form.
	means func(at location) call
	// form reads what the form shows; typed is what was sent and not done, nil at first.
	form func(v *visitor, at location, typed url.Values) (formView, error)
	// do does it, and says where its result is seen. *inputError for what was typed.
	do func(v *visitor, at location, typed url.Values) (to string, err error)
}

func actions() []action {
	return []action{
		{"/ui/accounts/{account}/limits", "limits.html", "accounts", limitsCall, limitsForm, changeLimits},
		{"/ui/accounts/{account}/suspend", "confirm.html", "accounts", pauseCall(adminapi.VerbSuspend), suspendForm, pause(adminapi.VerbSuspend)},
		{"/ui/accounts/{account}/resume", "confirm.html", "accounts", pauseCall(adminapi.VerbResume), resumeForm, pause(adminapi.VerbResume)},
		{"/ui/pools/{namespace}/{pool}/{runner}/retire", "confirm.html", "pools", retireCall, retireForm, retire},
	}
}

// formView is what every form is given.
type formView struct {
	Title   string
	To      string // the form's own address
	Token   string // proves that the form came from here, for this session
	Problem string // why nothing was done
	Reason  string // that was typed
	Back    string // where one goes who does nothing
	Button  string
	Lead    string // what will happen
	Shown   any    // of the form itself
}

// inputError is about a user's input.
type inputError struct{ sentence string }

// Error is a sentence for the user.
func (e *inputError) Error() string { return e.sentence }

// formLife is how long a form can be sent after it was shown.
const formLife = time.Hour

// maxForm bounds the body of a form, in bytes.
const maxForm = 16 << 10

// proof is what a form holds that was shown to one session, at one address. SameSite cookies and the check of origins keep other sites out
// already; this one holds for browsers that say nothing of where a request comes from.
func (c *Console) proof(r *http.Request, now time.Time) (string, error) {
	return c.seal.seal(forForm, sealed{ID: formOf(r), Until: now.Add(formLife)})
}

// formOf names a session and an address. It is of the cookie's sealed value, so who has a proof knows nothing of the session.
func formOf(r *http.Request) string {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(cookie.Value + "\n" + r.URL.Path))
	return hex.EncodeToString(sum[:])
}

// proven reports whether a form was shown to the session that sends it, at this address, within formLife.
func (c *Console) proven(r *http.Request, proof string) bool {
	content, err := c.seal.open(forForm, proof, c.opt.Now())
	return err == nil && content.ID != "" && content.ID == formOf(r)
}

// showForm answers GET: the form, to users who may send it.
func (c *Console) showForm(w http.ResponseWriter, r *http.Request, a action) {
	if v, at, ok := c.admitted(w, r, a); ok {
		c.writeForm(w, r, a, v, at, http.StatusOK, "")
	}
}

// sendForm answers POST. Nothing is done unless the form came from here; what could not be done is said in the form, with what was typed.
func (c *Console) sendForm(w http.ResponseWriter, r *http.Request, a action) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	v, at, ok := c.admitted(w, r, a)
	if !ok {
		return
	}
	if err := r.ParseForm(); err != nil {
		c.refusePage(w, r, http.StatusBadRequest, "The form is too large.")
		return
	}
	if !c.proven(r, r.PostForm.Get("proof")) {
		c.writeForm(w, r, a, v, at, http.StatusForbidden, "This form belongs to another session or is older than an hour. Nothing was changed. Check it and submit it again.")
		return
	}
	to, err := a.do(v, at, r.PostForm)
	var typed *inputError
	var refused *refusedError
	switch {
	case err == nil:
		http.Redirect(w, r, to, http.StatusSeeOther)
	case errors.As(err, &typed):
		c.writeForm(w, r, a, v, at, http.StatusBadRequest, typed.sentence)
	case errors.As(err, &refused) && inForm(refused.Status):
		c.writeForm(w, r, a, v, at, refused.Status, refused.Sentence)
	default:
		c.fail(w, r, a.pattern, err)
	}
}

// inForm reports whether a user who sees the form can do something about a refusal.
func inForm(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// admitted passes requests of users with the right, and answers all others (NET-5).
func (c *Console) admitted(w http.ResponseWriter, r *http.Request, a action) (*visitor, location, bool) {
	at := location{path: r.PathValue, query: r.URL.Query()}
	who, err := c.caller(r)
	if err != nil {
		toLogin(w, r)
		return nil, at, false
	}
	if err := ask(r.Context(), c.opt.Admission, who, a.means(at), nil); err != nil {
		c.fail(w, r, a.pattern, err)
		return nil, at, false
	}
	return &visitor{ctx: r.Context(), api: c.opt.API, who: who}, at, true
}

func (c *Console) writeForm(w http.ResponseWriter, r *http.Request, a action, v *visitor, at location, status int, problem string) {
	view, err := a.form(v, at, r.PostForm)
	if err == nil {
		view.Token, err = c.proof(r, c.opt.Now())
	}
	if err != nil {
		c.fail(w, r, a.pattern, err)
		return
	}
	view.To, view.Problem, view.Reason = r.URL.EscapedPath(), problem, r.PostForm.Get("reason")
	tab := view.Title
	if problem != "" {
		tab = "Error: " + tab
	}
	c.render(w, status, a.template, shown{Title: view.Title, Tab: tab, Who: v.who.name, Nav: a.nav, Data: view})
}

// fail answers a request that could not be served, by what went wrong.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, pattern string, err error) {
	status, sentence := refusal(err)
	switch status {
	case http.StatusUnauthorized:
		setSession(w, r, "", 0)
		toLogin(w, r)
		return
	case http.StatusInternalServerError:
		c.opt.Log.ErrorContext(context.WithoutCancel(r.Context()), "rendering a page of the console", "page", pattern, "error", err)
	}
	c.refusePage(w, r, status, sentence)
}

func reasonOf(typed url.Values) string { return strings.TrimSpace(typed.Get("reason")) }
