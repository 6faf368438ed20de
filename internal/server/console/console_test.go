package console_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

var everyPage = []string{"/ui/", "/ui/jobs", "/ui/jobs/7", "/ui/accounts", "/ui/accounts/acme", "/ui/audit", "/ui/recovery",
	"/ui/jobs/7/log", "/ui/pools", "/ui/pools/runners/linux-4", "/ui/nodes", "/ui/usage"}

// NET-5: without a session, or with one whose owner may not, no page says anything; and the API is asked as the visitor.
func TestPages_NET5_NothingIsShownToWhoMayNot(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7)
	ada, bob := d.session(adas), d.session(bobs)
	for _, path := range everyPage {
		resp := d.ask("GET", path, "", "")
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, path)
		require.Equal(t, "/ui/login?next="+url.QueryEscape(path), resp.Header.Get("Location"))
		require.Equal(t, http.StatusSeeOther, d.ask("GET", path, ada[:len(ada)-2]+"AA", "").StatusCode, "a cookie that somebody made up")

		resp = d.ask("GET", path, bob, "")
		require.Equal(t, http.StatusForbidden, resp.StatusCode, path)
		text := body(t, resp)
		require.Contains(t, text, "bob may not", path)
		require.NotContains(t, text, "acme", path)

		resp = d.ask("GET", path, ada, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
	}
	d.cluster.set(func(c *cluster) { c.revoked = true })
	for _, path := range everyPage {
		resp := d.ask("GET", path, ada, "")
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, "the token holds no more: %s", path)
		require.Contains(t, resp.Header.Get("Set-Cookie"), "Max-Age=0")
	}
	require.Equal(t, http.StatusUnauthorized, d.ask("GET", "/ui/stream?view=/ui/", "", "").StatusCode)
}

// Every answer forbids what is not this server's, and what is written into a page.
func TestHeaders_EveryAnswerIsStrict(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7)
	ada := d.session(adas)
	for _, path := range append(everyPage, "/ui/login", "/ui/nothing", "/ui/static/console.css", "/ui/static/nothing") {
		resp := d.ask("GET", path, ada, "")
		policy := resp.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			require.Contains(t, policy, want, path)
		}
		require.NotContains(t, policy, "unsafe", path)
		require.Equal(t, "DENY", resp.Header.Get("X-Frame-Options"), path)
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), path)
		require.NotEmpty(t, resp.Header.Get("Referrer-Policy"), path)
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
			text := body(t, resp)
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
			require.NotRegexp(t, `<style|\sstyle=|\son[a-z]+=|<script>|javascript:`, text, "something inline in %s", path)
			require.NotContains(t, text, adas, "the token in a page")
		}
	}
}

// A job's page leads to its trace, where there is one.
func TestJob_LeadsToItsTrace(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	page := func(id int64) string {
		d.tell(fleet.JobEventQueued, id)
		return body(t, d.ask("GET", fmt.Sprintf("/ui/jobs/%d", id), ada, ""))
	}
	require.Contains(t, page(1), `<a href="https://traces.example.com/4bf92f3577b34da6" rel="noreferrer">4bf92f3577b34da6</a>`)
	require.Contains(t, page(7), "<code>00f067aa0ba902b7</code>")
	require.NotContains(t, page(8), "Trace")
}

// A session's cookie is for this server's pages alone; what another site sends changes nothing; the token stands nowhere in the clear.
func TestLogin_SessionsAreSealed(t *testing.T) {
	d := newDesk(t)
	resp := d.ask("POST", "/ui/login", "", "token="+adas+"&next=/ui/jobs%3Fstate%3Dqueued")
	require.Equal(t, "/ui/jobs?state=queued", resp.Header.Get("Location"))
	cookie := resp.Header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/ui", "Max-Age=43200"} {
		require.Contains(t, cookie, want)
	}
	require.NotContains(t, cookie, "Secure")
	require.NotContains(t, cookie, adas)
	resp = d.ask("POST", "/ui/login", "", "token="+adas, func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") })
	require.Contains(t, resp.Header.Get("Set-Cookie"), "Secure")
	require.NotEmpty(t, resp.Header.Get("Strict-Transport-Security"))

	for name, change := range map[string]func(*http.Request){
		"another site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
	} {
		for _, path := range []string{"/ui/login", "/ui/logout"} {
			resp := d.ask("POST", path, "", "token="+adas, change)
			require.Equal(t, http.StatusForbidden, resp.StatusCode, "%s %s", name, path)
			require.Empty(t, resp.Header.Get("Set-Cookie"), name)
		}
	}
	for _, c := range []struct {
		body, host string
		status     int
		says       string
	}{
		{"token=", "", 400, "Paste a token"},
		{"token=made-up", "", 401, "rejects this token"},
		{"code=made-up", "", 401, "used before"},
		{"token=" + strings.Repeat("x", 40_000), "", 400, "too long"},
		{"token=" + adas, "bullpen.example.com", 403, "unencrypted"},
		{"token=" + adas, "192.0.2.1:8082", 403, "unencrypted"},
	} {
		resp := d.ask("POST", "/ui/login", "", c.body, func(r *http.Request) {
			if c.host != "" {
				r.Host = c.host
			}
		})
		require.Equal(t, c.status, resp.StatusCode, c.body[:min(30, len(c.body))])
		require.Contains(t, body(t, resp), c.says)
		require.Empty(t, resp.Header.Get("Set-Cookie"))
	}
	for _, next := range []string{"https://evil.example/ui/", "//evil.example/ui/", "/\\evil.example", "/ui/../\\evil.example", "/ui/logout", "/api/v1/jobs", "/ui/\r\nX: y", "javascript:alert(1)"} {
		resp := d.ask("POST", "/ui/login", "", "token="+adas+"&next="+url.QueryEscape(next))
		require.Equal(t, "/ui/", resp.Header.Get("Location"), next)
	}
	resp = d.ask("POST", "/ui/logout", d.session(adas), "")
	require.Contains(t, resp.Header.Get("Set-Cookie"), "Max-Age=0")
}

// code is what `bullpen console` asks for.
func (d *desk) code() string {
	d.t.Helper()
	resp := d.ask("POST", adminapi.PathConsoleCode, "", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adas) })
	require.Equal(d.t, http.StatusOK, resp.StatusCode)
	var answer adminapi.ConsoleCode
	require.NoError(d.t, json.NewDecoder(resp.Body).Decode(&answer))
	require.NotContains(d.t, answer.Code, adas)
	return answer.Code
}

// A code logs in once, soon, and only the user that it was issued to; it opens no page, and a session's cookie is no code.
func TestLogin_CodesAreForOnce(t *testing.T) {
	now := time.Now()
	d := newDesk(t, func(o *console.Options) { o.Now = func() time.Time { return now } })
	once := d.code()
	require.Equal(t, http.StatusSeeOther, d.ask("GET", "/ui/jobs", once, "").StatusCode, "a code is no session")
	require.Equal(t, "/ui/", d.ask("POST", "/ui/login", "", "code="+once).Header.Get("Location"))
	require.Equal(t, http.StatusUnauthorized, d.ask("POST", "/ui/login", "", "code="+once).StatusCode, "a second time")
	late := d.code()
	session := d.session(adas)
	now = now.Add(time.Minute)
	require.Equal(t, http.StatusUnauthorized, d.ask("POST", "/ui/login", "", "code="+late).StatusCode, "a minute later")
	require.Equal(t, http.StatusUnauthorized, d.ask("POST", "/ui/login", "", "code="+session).StatusCode, "a session is no code")
	require.Equal(t, http.StatusOK, d.ask("GET", "/ui/jobs", session, "").StatusCode)
	now = now.Add(12 * time.Hour)
	require.Equal(t, http.StatusSeeOther, d.ask("GET", "/ui/jobs", session, "").StatusCode, "12 hours later")

	for token, status := range map[string]int{"": 401, "Bearer made-up": 401} {
		resp := d.ask("POST", adminapi.PathConsoleCode, session, "", func(r *http.Request) { r.Header.Set("Authorization", token) })
		require.Equal(t, status, resp.StatusCode)
	}
}

// Sessions of one replica are valid at the others, and at no server with another secret.
func TestLogin_AnyReplicaKnowsASession(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	again := func(secret string) int {
		other, err := console.New(console.Options{API: d.api, Admission: d.api, Secret: []byte(secret)})
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/ui/jobs", nil)
		r.AddCookie(&http.Cookie{Name: "bullpen_session", Value: ada})
		w := httptest.NewRecorder()
		other.Handler().ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusOK, again("a secret that every replica has"))
	require.Equal(t, http.StatusSeeOther, again("a secret that nobody else has!!"))
	_, err := console.New(console.Options{API: d.api, Admission: d.api, Secret: []byte("short")})
	require.Error(t, err)
}

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>`

// What others write is text, in pages and in what is streamed.
func TestPages_WhatOthersWriteIsText(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) {
		ev.Name, ev.Workflow, ev.HeadBranch, ev.Labels = hostile, hostile, hostile, []string{hostile}
	})
	d.suspend("acme", hostile, true)
	ada := d.session(adas)
	escaped := 0
	for _, path := range append(everyPage, "/ui/jobs?repository="+url.QueryEscape(hostile), "/ui/audit?account="+url.QueryEscape(hostile),
		"/ui/jobs/"+url.PathEscape(hostile), "/ui/login?next="+url.QueryEscape("/ui/"+hostile)) {
		text := body(t, d.ask("GET", path, ada, ""))
		require.NotContains(t, text, "<script>alert", path)
		require.NotContains(t, text, "<img src=x", path)
		escaped += strings.Count(text, "&lt;script&gt;")
	}
	require.Greater(t, escaped, 8)
	stream := d.watch("/ui/jobs", ada)
	data := stream.next("page")
	var html string
	require.NoError(t, json.Unmarshal([]byte(data), &html))
	require.Contains(t, html, "&lt;script&gt;")
	require.NotContains(t, html, "<script>")
}

// stream is server-sent events as they come.
type stream struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Scanner
}

func (d *desk) watch(view, cookie string) *stream {
	d.t.Helper()
	resp := d.ask("GET", "/ui/stream?view="+url.QueryEscape(view), cookie, "")
	require.Equal(d.t, http.StatusOK, resp.StatusCode)
	require.Equal(d.t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &stream{d.t, resp, lines}
}

// next reads up to the next event of that kind; the test's own time-out bounds it.
func (s *stream) next(event string) string {
	s.t.Helper()
	for s.lines.Scan() {
		if s.lines.Text() == "event: "+event {
			require.True(s.t, s.lines.Scan())
			return strings.TrimPrefix(s.lines.Text(), "data: ")
		}
	}
	require.Fail(s.t, "the stream ended", "before %s: %v", event, s.lines.Err())
	return ""
}

// The number of reads for live pages does not grow with viewers; a page without viewers is not read.
func TestStream_LoadDoesNotGrowWithViewers(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	var streams []*stream
	for range 20 {
		s := d.watch("/ui/jobs", ada)
		require.Contains(t, s.next("page"), "No active jobs")
		streams = append(streams, s)
	}
	before := d.api.count("/api/v1/jobs")
	d.tell(fleet.JobEventQueued, 7)
	for _, s := range streams {
		require.Contains(t, s.next("page"), "build-7")
	}
	// It was seen within a few readings, each of which is one for all of them.
	require.Less(t, d.api.count("/api/v1/jobs")-before, 20)
	for _, s := range streams {
		s.resp.Body.Close()
	}
	reading := func() bool {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		return strings.Contains(stacks.String(), "console.(*views).read(")
	}
	require.Eventually(t, func() bool { return !reading() }, 10*time.Second, 20*time.Millisecond)
	d.watch("/ui/jobs", ada).next("page")
	require.True(t, reading(), "the check looks for something else than what reads")
}

// Streams are bounded; when some end, others may come; and all end with the console.
func TestStream_IsBoundedAndEnds(t *testing.T) {
	d := newDesk(t, func(o *console.Options) { o.MostStreams = 3 })
	ada := d.session(adas)
	var streams []*stream
	for i := range 3 {
		streams = append(streams, d.watch(fmt.Sprintf("/ui/jobs?limit=%d", i+1), ada))
	}
	more := func() int { return d.ask("GET", "/ui/stream?view=/ui/", ada, "").StatusCode }
	require.Equal(t, http.StatusServiceUnavailable, more())
	require.Equal(t, http.StatusOK, d.ask("GET", "/ui/", ada, "").StatusCode, "pages are served all the same")
	streams[0].resp.Body.Close()
	require.Eventually(t, func() bool { return more() == http.StatusOK }, 10*time.Second, 50*time.Millisecond)
	for _, view := range []string{"", "/ui/nothing", "/api/v1/jobs", "https://evil.example/ui/", "/ui/login", "/ui/stream"} {
		require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/stream?view="+url.QueryEscape(view), ada, "").StatusCode, view)
	}
	d.stop()
	for streams[1].lines.Scan() {
		continue // it ends, or the test does not
	}
	require.Equal(t, http.StatusServiceUnavailable, more(), "nothing begins after that")
}

// NET-5: a page that only one of two users may see is not streamed to the other, regardless of whose right it was read with; and it ends
// when the right does.
func TestStream_NET5_EachIsAskedAbout(t *testing.T) {
	d := newDesk(t, func(o *console.Options) { o.Recheck = 50 * time.Millisecond })
	d.tell(fleet.JobEventQueued, 7)
	ada, bob := d.session(adas), d.session(bobs)
	adas := d.watch("/ui/jobs", ada)
	require.Contains(t, adas.next("page"), "build-7")
	bobs := d.watch("/ui/jobs", bob)
	for bobs.lines.Scan() {
		require.NotContains(t, bobs.lines.Text(), "build-7")
		if bobs.lines.Text() == "event: end" {
			break
		}
	}
	d.cluster.set(func(c *cluster) { c.denied = true })
	adas.next("end")
}

// Pools show what they have, what waits for them and what is wrong; runners lead to their jobs; machines show who is on them.
func TestPools_ShowWhatTheyHave(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	text := func(path string) string {
		shown := body(t, d.ask("GET", path, ada, ""))
		return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(shown, " ")), " ")
	}
	for _, path := range []string{"/ui/", "/ui/pools"} {
		require.Regexp(t, `linux-4 open linux-4 4 2 [-0-9: ]+ UTC 1 1 1 3 Starved linux-8 drained linux-8 \? \? \? 0 0 0 0 Drained macs paused macos-15 \? \? \? 2 0 0 2 Paused`, text(path), path)
	}
	pool := text("/ui/pools/runners/linux-4")
	for _, want := range []string{"4 vCPU and 8 GiB each", "Queued 4", "Idle 1", "2 by account limit", "linux-4-b registered 2 acme node-1", "linux-4-c starting – – –"} {
		require.Contains(t, pool, want)
	}
	require.Contains(t, body(t, d.ask("GET", "/ui/pools/runners/linux-4", ada, "")), `href="/ui/jobs/2"`)
	for name, want := range map[string]string{ // ADR 0029: the console says who can change it, and cannot
		"linux-4": "open Its runners get jobs. Change it with your own cluster permissions: bullpen pool pause linux-4 -n runners bullpen pool drain linux-4 -n runners History",
		"macs":    "paused Its runners stay, and get no jobs. Change it with your own cluster permissions: bullpen pool resume macs -n runners bullpen pool drain macs -n runners History",
		"linux-8": "drained Its runners get no jobs, and idle ones are removed. Change it with your own cluster permissions: bullpen pool resume linux-8 -n runners bullpen pool pause linux-8 -n runners History",
	} {
		require.Contains(t, text("/ui/pools/runners/"+name), want)
	}
	require.NotContains(t, text("/ui/pools/runners/linux-4?stage=idle"), "linux-4-b")
	require.Contains(t, text("/ui/pools/runners/linux-4"), "starting idle assigned registered busy terminating finished", "the filter's words are those of the command line")
	first := body(t, d.ask("GET", "/ui/pools/runners/linux-4", ada, ""))
	require.NotContains(t, first, "Next page")
	require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/pools/runners/none", ada, "").StatusCode)
	nodes := text("/ui/nodes")
	require.Contains(t, nodes, "mini-1 runners ready mini-1 minis")
	require.Regexp(t, `mini-2 runners Failed mini-2 minis .* UTC 2 .* UTC step tart failed; it is tried again tart another version is installed Last error: checking tart`, nodes)
	require.Contains(t, nodes, "not scheduled linux-4 1 0 0 1 0 node-1 linux-4 1 0 1 0 0 node-2 linux-4 1 1 0 0 0")
}

// Ten thousand jobs are shown page by page, and found by what the address says.
func TestJobs_ArePagedAndFilteredByAddress(t *testing.T) {
	d := newDesk(t)
	for id := int64(1); id <= 120; id++ {
		d.tell(fleet.JobEventQueued, id, func(ev *dispatch.JobEvent) {
			if id%40 == 0 {
				ev.Repository = "acme/rare"
			}
		})
	}
	ada := d.session(adas)
	seen, path := 0, "/ui/jobs?account=acme&state=queued"
	for path != "" {
		text := body(t, d.ask("GET", path, ada, ""))
		require.LessOrEqual(t, strings.Count(text, "data-key="), 50)
		seen += strings.Count(text, "data-key=")
		path = ""
		if _, rest, more := strings.Cut(text, `class="button" href="/ui/jobs?account=acme&amp;before=`); more {
			next, _, _ := strings.Cut(rest, `"`)
			require.Contains(t, next, "state=queued")
			path = "/ui/jobs?account=acme&before=" + strings.ReplaceAll(next, "&amp;", "&")
		}
	}
	require.Equal(t, 120, seen)
	require.Equal(t, 3, strings.Count(body(t, d.ask("GET", "/ui/jobs?repository=acme/rare", ada, "")), "data-key="))
	resp := d.ask("GET", "/ui/jobs?state=nonsense", ada, "")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Contains(t, body(t, resp), "state must be one of")
}
