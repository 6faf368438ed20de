package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/console"
)

// everyAction leads to a form each, and what it takes beside the proof.
var everyAction = map[string]url.Values{
	"/ui/accounts/acme/limits":                   {"version": {"1"}, "linux.jobs": {"9"}, "was.linux.jobs": {"1"}},
	"/ui/accounts/acme/suspend":                  {},
	"/ui/accounts/globex/resume":                 {},
	"/ui/pools/runners/linux-4/linux-4-d/retire": {},
}

var hiddenField = regexp.MustCompile(`<input (?:type="hidden" )?name="([^"]*)"(?: maxlength="500" autocomplete="off")? value="([^"]*)"`)

// form reads a form as a browser would.
func (d *desk) form(path, cookie string) url.Values {
	d.t.Helper()
	resp := d.ask("GET", path, cookie, "")
	text := body(d.t, resp)
	require.Equal(d.t, http.StatusOK, resp.StatusCode, text)
	return fields(d.t, text)
}

func fields(t *testing.T, text string) url.Values {
	t.Helper()
	found := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(text, -1) {
		found.Set(field[1], field[2])
	}
	require.NotEmpty(t, found.Get("proof"), text)
	return found
}

// state is what actions could have changed.
func (d *desk) state() string {
	d.t.Helper()
	var all []string
	for _, login := range []string{"acme", "globex"} {
		account, err := d.store.Account(d.t.Context(), login)
		require.NoError(d.t, err)
		all = append(all, fmt.Sprint(account.Version, account.State, account.Budgets))
	}
	events, err := d.store.Audit(d.t.Context(), admin.AuditQuery{Most: 100})
	require.NoError(d.t, err)
	return fmt.Sprint(all, len(events))
}

func (d *desk) lastEvent() adminapi.AuditEvent {
	d.t.Helper()
	events, err := d.store.Audit(d.t.Context(), admin.AuditQuery{Most: 1})
	require.NoError(d.t, err)
	return events[0]
}

func (d *desk) linux(login string) adminapi.Limits {
	d.t.Helper()
	account, err := d.store.Account(d.t.Context(), login)
	require.NoError(d.t, err)
	for _, budget := range account.Budgets {
		if budget.Platform == "linux" {
			return budget.Limits
		}
	}
	return adminapi.Limits{}
}

// NET-5: who may not do something is shown no form for it, and changes nothing by sending one that another was shown.
func TestActions_NET5_AreForWhoMay(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	before := d.state()
	for path, typed := range everyAction {
		for name, cookie := range map[string]string{"bob": d.session(bobs), "cleo": d.session(cleo)} {
			resp := d.ask("GET", path, cookie, "")
			require.Equal(t, http.StatusForbidden, resp.StatusCode, "%s %s", name, path)
			text := body(t, resp)
			require.Contains(t, text, name+" may not", path)
			require.NotContains(t, text, "<form class=\"act\"", path)
			sent := d.form(path, ada)
			for key := range typed {
				sent.Set(key, typed.Get(key))
			}
			require.Equal(t, http.StatusForbidden, d.ask("POST", path, cookie, sent.Encode()).StatusCode, "%s %s", name, path)
		}
		require.Equal(t, http.StatusSeeOther, d.ask("GET", path, "", "").StatusCode)
		require.Equal(t, "/ui/login?next="+url.QueryEscape(path), d.ask("POST", path, "", typed.Encode()).Header.Get("Location"))
		require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/stream?view="+url.QueryEscape(path), ada, "").StatusCode, "a form is nobody else's")
	}
	require.Equal(t, before, d.state())
}

// A form is sent by the session that it was shown to, at its own address, within an hour; also by a browser that says nothing of where a
// request comes from.
func TestActions_FormsBelongToASession(t *testing.T) {
	now := time.Now()
	d := inhabited(t, func(o *console.Options) { o.Now = func() time.Time { return now } })
	ada, again := d.session(adas), d.session(adas)
	before := d.state()
	const path = "/ui/accounts/acme/suspend"
	shown := d.form(path, ada)
	for name, proof := range map[string]string{
		"none": "", "made up": "AAAA", "another session's": d.form(path, again).Get("proof"), "a session": ada, "a code": d.code(),
		"another form's": d.form("/ui/accounts/globex/suspend", ada).Get("proof"), "changed": shown.Get("proof")[:20] + "AA" + shown.Get("proof")[22:],
	} {
		resp := d.ask("POST", path, ada, url.Values{"proof": {proof}, "reason": {"because"}}.Encode())
		require.Equal(t, http.StatusForbidden, resp.StatusCode, name)
		text := body(t, resp)
		require.Contains(t, text, "Nothing was changed", name)
		require.Contains(t, text, `value="because"`, "what was typed is there still")
	}
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		resp := d.ask("POST", path, ada, shown.Encode(), func(r *http.Request) { r.Header.Set(header, value) })
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.NotContains(t, body(t, resp), "proof", "no form for another site")
	}
	require.Equal(t, http.StatusSeeOther, d.ask("GET", "/ui/jobs", shown.Get("proof"), "").StatusCode, "a form's proof is no session")
	require.Equal(t, http.StatusUnauthorized, d.ask("POST", "/ui/login", "", "code="+shown.Get("proof")).StatusCode, "and no code")
	now = now.Add(time.Hour)
	require.Equal(t, http.StatusForbidden, d.ask("POST", path, ada, shown.Encode()).StatusCode, "an hour later")
	require.Equal(t, http.StatusBadRequest, d.ask("POST", path, ada, "reason="+strings.Repeat("x", 20_000)).StatusCode)
	require.Equal(t, before, d.state())

	require.Equal(t, "/ui/accounts/@1#changes", d.ask("POST", path, ada, d.form(path, ada).Encode()).Header.Get("Location"))
	require.NotEqual(t, before, d.state())
}

// Limits are changed by those fields alone that were typed over, in the visitor's name.
func TestLimits_AreChangedAndAudited(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	const path = "/ui/accounts/@1/limits"
	was := d.linux("acme")
	form := d.form(path, ada)
	require.Equal(t, "1", form.Get("linux.jobs"))
	form.Set("linux.jobs", " 12 ")
	form.Set("linux.cpu", "1500m")
	form.Set("reason", "they grow")
	resp := d.ask("POST", path, ada, form.Encode())
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, body(t, resp))
	require.Equal(t, "/ui/accounts/@1#changes", resp.Header.Get("Location"))
	is := d.linux("acme")
	require.Equal(t, adminapi.Limits{Jobs: 12, MilliCPU: 1500, MemoryMB: was.MemoryMB, JobsPerRepository: was.JobsPerRepository}, is)
	event := d.lastEvent()
	require.Equal(t, []string{"ada", "JTI=1", adminapi.ActionSetLimits, "they grow", "acme"},
		[]string{event.Actor, event.Credential, event.Action, event.Reason, event.Account})

	before := d.state()
	require.Equal(t, http.StatusSeeOther, d.ask("POST", path, ada, form.Encode()).StatusCode, "sent twice")
	require.Equal(t, before, d.state())
}

// An invalid input is reported at its field, and no other input is lost.
func TestLimits_BadInputLosesNothing(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	const path = "/ui/accounts/acme/limits"
	before := d.state()
	for _, c := range []struct{ field, typed, says string }{
		{"linux.jobs", "many", "Concurrent jobs (linux)"},
		{"linux.jobs", "-1", "not a number of jobs"},
		{"linux.jobs", "", "not a number of jobs"},
		{"linux.jobs", "99999999999999999999", "not a number of jobs"},
		{"linux.cpu", "4 cores", "CPUs (linux)"},
		{"linux.memory", "12", "such as 512Mi, 64Gi or 1Ti"},
		{"linux.repository", hostile, "Jobs per repository"},
		{"linux.jobs", "1", "Nothing to save"},
		{"version", "", "reload the page"},
		{"version", "-3", "reload the page"},
	} {
		form := d.form(path, ada)
		form.Set(c.field, c.typed)
		form.Set("reason", "kept")
		resp := d.ask("POST", path, ada, form.Encode())
		text := body(t, resp)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, c.typed)
		require.Contains(t, text, c.says)
		require.Contains(t, text, `role="alert"`)
		require.Contains(t, text, `value="kept"`)
		require.NotContains(t, text, "<script>alert")
		if strings.HasPrefix(c.field, "linux") && c.typed != hostile {
			require.Contains(t, text, `value="`+c.typed+`"`, "what was typed is there still")
		}
	}
	form := d.form(path, ada)
	form.Set("linux.jobs", "5")
	form.Set("reason", strings.Repeat("x", 501))
	require.Equal(t, http.StatusBadRequest, d.ask("POST", path, ada, form.Encode()).StatusCode)
	require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/accounts/nobody/limits", ada, "").StatusCode)
	require.Equal(t, before, d.state())
}

// The slower of two users sees the concurrent change, and does not revert it by sending the form again.
func TestLimits_AreNotTakenBackUnseen(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	const path = "/ui/accounts/acme/limits"
	form := d.form(path, ada)
	form.Set("linux.cpu", "64")
	d.limit("acme", 30)
	resp := d.ask("POST", path, ada, form.Encode())
	text := body(t, resp)
	require.Equal(t, http.StatusPreconditionFailed, resp.StatusCode)
	require.Contains(t, text, "has changed since this form was shown")
	require.NotEqual(t, int64(64_000), d.linux("acme").MilliCPU)
	retried := fields(t, text)
	require.Equal(t, "30", retried.Get("linux.jobs"), "no other value was entered")
	require.Equal(t, "64", retried.Get("linux.cpu"), "this was")
	require.Equal(t, http.StatusSeeOther, d.ask("POST", path, ada, retried.Encode()).StatusCode)
	require.Equal(t, int64(30), d.linux("acme").Jobs)
	require.Equal(t, int64(64_000), d.linux("acme").MilliCPU)
}

// An account is suspended and resumed, a runner that waits is retired, and one that works is not (EXCL-5).
func TestActions_EXCL5_DoWhatTheySay(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	send := func(path, reason string) *http.Response {
		form := d.form(path, ada)
		form.Set("reason", reason)
		return d.ask("POST", path, ada, form.Encode())
	}
	for _, c := range []struct{ path, action, to string }{
		{"/ui/accounts/acme/suspend", adminapi.ActionSuspend, "/ui/accounts/@1#changes"},
		{"/ui/accounts/acme/resume", adminapi.ActionResume, "/ui/accounts/@1#changes"},
		{"/ui/pools/runners/linux-4/linux-4-d/retire", adminapi.ActionRetire, "/ui/pools/runners/linux-4#runners"},
	} {
		resp := send(c.path, "for "+c.action)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, body(t, resp))
		require.Equal(t, c.to, resp.Header.Get("Location"))
		event := d.lastEvent()
		require.Equal(t, []string{"ada", c.action, "for " + c.action}, []string{event.Actor, event.Action, event.Reason})
	}
	before := d.state()
	resp := send("/ui/pools/runners/linux-4/linux-4-b/retire", "")
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Contains(t, body(t, resp), "linux-4-b is busy with a job for acme")
	resp = send("/ui/pools/runners/linux-4/linux-4-x/retire", "")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	gone := body(t, resp)
	require.Contains(t, gone, "not found in namespace")
	require.NotContains(t, gone, `class="act"`, "sending it again would help nobody")
	require.Equal(t, before, d.state())
}

// A user finds an account at its limit, raises it by keyboard, and sees the change with its author.
func TestConsole_ALimitIsRaisedByKeyboard(t *testing.T) {
	d := inhabited(t)
	b := newBrowser(t, d, 1280, 900)
	b.login(d.session(adas))
	b.open("/ui/accounts/acme")
	b.keys(`a[href$="/limits"]`, kb.Enter)
	b.shows("form.act")
	b.picture("limits")
	require.Equal(t, "1", eval[string](b, `document.querySelector("[name='linux.jobs']").value`))
	b.eventually(`(document.querySelector("[name='linux.jobs']").select(), true)`, "")
	b.keys(`[name="linux.jobs"]`, "25")
	b.keys(`[name="reason"]`, "a release"+kb.Enter)
	b.eventually(`location.pathname === "/ui/accounts/@1"`, "it does not lead back to the account")
	b.eventually(`document.body.innerText.includes("linux jobs: 1 → 25") && document.body.innerText.includes("a release")`, "the change is not shown")
	require.Equal(t, int64(25), d.linux("acme").Jobs)
	b.content()
}
