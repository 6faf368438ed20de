package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// page is what a visitor gets, which must be there.
func (d *desk) page(path, cookie string) string {
	d.t.Helper()
	resp := d.ask("GET", path, cookie, "")
	text := body(d.t, resp)
	require.Equal(d.t, http.StatusOK, resp.StatusCode, "%s: %s", path, text)
	return text
}

func ended(conclusion string, change ...func(*dispatch.JobEvent)) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) {
		ev.Conclusion = conclusion
		for _, c := range change {
			c(ev)
		}
	}
}

// A completed job's badge is its conclusion, in lists and on its page, and each conclusion has its colour.
func TestJobs_TheConclusionIsTheBadge(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	for i, conclusion := range []string{"success", "failure", "cancelled", "skipped", "timed_out"} {
		d.tell(fleet.JobEventCompleted, int64(i+1), ended(conclusion))
	}
	list := d.page("/ui/jobs?ended=true", ada)
	for i, badge := range []string{"success", "failure", "cancelled", "skipped", "timed-out"} {
		shown := `<span class="state ` + badge + `">` + strings.ReplaceAll(badge, "-", " ") + `</span>`
		require.Contains(t, list, shown)
		require.Contains(t, d.page(fmt.Sprintf("/ui/jobs/%d", i+1), ada), shown)
	}
	require.NotContains(t, list, `class="state completed"`)
	b := newBrowser(t, d, 1280, 900)
	b.login(ada)
	b.open("/ui/jobs?ended=true")
	colour := func(badge string) string {
		return eval[string](b, `getComputedStyle(document.querySelector("td .state.`+badge+`")).backgroundColor`)
	}
	require.Len(t, map[string]bool{colour("success"): true, colour("failure"): true, colour("cancelled"): true}, 3)
	require.Equal(t, colour("cancelled"), colour("skipped"))
	require.Equal(t, colour("failure"), colour("timed-out"))
	b.content()
}

// Jobs are found by their conclusion, by a part of their repository and by a part of their name; the filter stays in the form and in links to pages.
func TestJobs_AreSearched(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	for id := int64(1); id <= 60; id++ {
		d.tell(fleet.JobEventCompleted, id, ended([]string{"success", "failure"}[id%2], func(ev *dispatch.JobEvent) {
			ev.Repository = []string{"acme/app", "acme/library"}[id/2%2]
		}))
	}
	d.tell(fleet.JobEventQueued, 100)
	found := func(query string) int { return strings.Count(d.page("/ui/jobs?"+query, ada), "data-key=") }
	require.Equal(t, 30, found("conclusion=failure"))
	require.Equal(t, 30, found("conclusion=any_failure"))
	require.Equal(t, 15, found("conclusion=failure&repository=LIB"))
	require.Equal(t, 1, found("ended=true&name=BUILD-42"))
	require.Equal(t, 1, found("name=build"), "of active jobs only")
	require.Zero(t, found("name=build-42"))
	require.Contains(t, d.page("/ui/jobs?name=build-42", ada), "No job matches")
	page := d.page("/ui/jobs?conclusion=failure&name=build&limit=10", ada)
	require.Contains(t, page, `<option value="failure" selected>failure</option>`)
	require.Contains(t, page, `name="name" value="build"`)
	next := regexp.MustCompile(`class="button" href="(/ui/jobs\?[^"]*before=[^"]*)"`).FindStringSubmatch(page)
	require.NotNil(t, next)
	address, err := url.Parse(strings.ReplaceAll(next[1], "&amp;", "&"))
	require.NoError(t, err)
	require.Equal(t, "failure", address.Query().Get("conclusion"))
	require.Equal(t, "build", address.Query().Get("name"))
	require.Equal(t, 10, strings.Count(d.page(address.String(), ada), "data-key="))
	resp := d.ask("GET", "/ui/jobs?conclusion=bad", ada, "")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	for state, want := range map[string]int{"running": 0, "queued": 1, "completed": 50, "blocked": 0, "assigned": 0} {
		require.Equal(t, want, found("state="+state), state)
	}
	require.Contains(t, d.page("/ui/jobs?state=pending_approval", ada), `<option value="pending_approval" selected>pending approval</option>`)
}

// Wherever a job is shown, its page at GitHub is a click away; and a runner has one name, which stays with the job.
func TestJobs_LinkToGitHubAndNameTheirRunner(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	d.tell(fleet.JobEventQueued, 7)
	d.work("linux-4-a", podA)
	d.tell(fleet.JobEventStarted, 7, func(ev *dispatch.JobEvent) { ev.RunnerName = "linux-4-a-1" })
	d.tell(fleet.JobEventCompleted, 7, func(ev *dispatch.JobEvent) { ev.RunnerName = "linux-4-a-1" })
	d.tell(fleet.JobEventQueued, 8)
	const job = `href="https://ghes.example.com/acme/app/actions/runs/9/job/%d"`
	for _, path := range []string{"/ui/jobs?ended=true", "/ui/jobs/7"} {
		text := d.page(path, ada)
		require.Contains(t, text, fmt.Sprintf(job, 7), path)
		require.Contains(t, text, `<a href="/ui/pools/runners/linux-4">linux-4</a>`, path)
		require.Regexp(t, `(<small>|<dd>)linux-4-a<`, text, path)
	}
	for _, path := range []string{"/ui/", "/ui/accounts/acme"} {
		require.Contains(t, d.page(path, ada), fmt.Sprintf(job, 8), path)
	}
	page := d.page("/ui/jobs/7", ada)
	require.Contains(t, page, `href="https://ghes.example.com/acme/app/actions/runs/9"`)
	require.Contains(t, page, "registered at GitHub as linux-4-a-1")
	require.NotContains(t, d.page("/ui/jobs?ended=true", ada), "linux-4-a-1", "a list has one name")
}

// The page of a job that is queued shows why, and its wait as it grows, without a word from the server.
func TestJob_ItsWaitGrows(t *testing.T) {
	d := newDesk(t, func(o *console.Options) { o.Every = time.Hour })
	d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) { ev.QueuedAt = time.Now().Add(-10 * time.Minute) })
	b := newBrowser(t, d, 1280, 900)
	b.login(d.session(adas))
	b.open("/ui/jobs/7")
	require.Contains(t, b.text(), "about-to-start")
	require.Contains(t, eval[string](b, `document.querySelector("tr.open").innerText`), "waiting for quota or an idle runner")
	for _, wait := range []string{".lead time", "tr.open time"} {
		first := eval[string](b, `document.querySelector("`+wait+`").textContent`)
		b.eventually(`document.querySelector("`+wait+`").textContent !== "`+first+`"`, "the wait does not grow: "+first)
	}
	require.True(t, eval[bool](b, `document.querySelector(".lead time").classList.contains("late")`), "ten minutes are long")
	require.Equal(t, "queued: build-7 · Bullpen", eval[string](b, `document.title`))
	b.content()
}

// A page is called live while its data is fresh: not when the server can read nothing, and not when it says nothing.
func TestConsole_LiveIsFresh(t *testing.T) {
	var broken atomic.Bool
	d := newDesk(t, func(o *console.Options) {
		o.Beat, o.Fresh = 50*time.Millisecond, time.Second
		api := o.API
		o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				http.Error(w, `{"error":"the ledger could not be asked"}`, http.StatusServiceUnavailable)
				return
			}
			api.ServeHTTP(w, r)
		})
	})
	b := newBrowser(t, d, 1280, 900)
	b.login(d.session(adas))
	b.open("/ui/jobs")
	b.live()
	broken.Store(true)
	// Not once shown, but at last: on a busy machine it was old before, and what was being read then has made it live again.
	b.eventually(`document.querySelector("#live[data-state=old]")?.textContent === "not live: no new data for 1s"`, "it does not grow old")
	broken.Store(false)
	b.live()
	b.content()

	silent := newDesk(t, func(o *console.Options) { o.Beat, o.Recheck, o.Fresh = time.Hour, time.Hour, time.Second })
	c := newBrowser(t, silent, 1280, 900)
	c.login(silent.session(adas))
	c.open("/ui/jobs")
	c.live()
	c.shows(`#live[data-state=old]`)
	c.content()
}

// Every page says who is logged in and which version it is of; one before the login says neither.
func TestPages_SayWhoIsLoggedIn(t *testing.T) {
	d := newDesk(t)
	ada := d.session(adas)
	for _, path := range []string{"/ui/", "/ui/jobs", "/ui/usage", "/ui/accounts/acme/limits"} {
		text := d.page(path, ada)
		require.Contains(t, text, "Logged in as <strong>ada</strong>", path)
		require.Contains(t, text, "Bullpen v9.8.7", path)
	}
	require.Contains(t, body(t, d.ask("GET", "/ui/jobs", d.session(bobs), "")), "Logged in as <strong>bob</strong>")
	require.Contains(t, body(t, d.ask("GET", "/ui/none", ada, "")), "Logged in as <strong>ada</strong>")
	login := d.page("/ui/login", "")
	require.NotContains(t, login, "v9.8.7")
	require.NotContains(t, login, "Logged in")
	require.Contains(t, login, "Bullpen at <strong>"+strings.TrimPrefix(d.url, "http://")+"</strong>")
}

// A tab's title says what the page is, and in which state.
func TestPages_HaveATitleForEveryState(t *testing.T) {
	d := newDesk(t)
	ada, bob := d.session(adas), d.session(bobs)
	d.tell(fleet.JobEventQueued, 7)
	d.tell(fleet.JobEventCompleted, 8, ended("failure"))
	title := func(resp *http.Response) string {
		found := regexp.MustCompile(`<title>(.*) · Bullpen</title>`).FindStringSubmatch(body(t, resp))
		require.NotNil(t, found)
		return found[1]
	}
	for path, want := range map[string]string{
		"/ui/": "Overview", "/ui/jobs": "Jobs", "/ui/jobs?state=queued&repository=app": "Jobs: queued, app", "/ui/jobs?conclusion=timed_out": "Jobs: timed out",
		"/ui/jobs/7": "queued: build-7", "/ui/jobs/8": "failure: build-8", "/ui/jobs/404": "Unknown job 404", "/ui/none": "Not found",
		"/ui/jobs?state=nonsense": "Invalid request", "/ui/pools/runners/linux-4": "Pool linux-4", "/ui/accounts/acme/limits": "Limits of acme", "/ui/login": "Log in",
	} {
		require.Equal(t, want, title(d.ask("GET", path, ada, "")), path)
	}
	require.Equal(t, "Access denied", title(d.ask("GET", "/ui/jobs", bob, "")))
	require.Equal(t, "Error: Log in", title(d.ask("POST", "/ui/login", "", "token=")))
	require.Equal(t, "Error: Suspend acme", title(d.ask("POST", "/ui/accounts/acme/suspend", ada, "proof=")))
}

// What is a problem is marked as one.
func TestOverview_ProblemsAreMarked(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	text := d.page("/ui/", ada)
	require.Regexp(t, `(?s)<dd id="oldest"><time [^>]*data-late="300"`, text)
	require.Contains(t, text, `<div class="warn"><dt>Accounts at their limit</dt><dd>1</dd></div>`)
	require.Contains(t, text, `<div><dt>Running</dt>`)
	require.Contains(t, text, `<div class="bad"><dt>Failed in the last hour</dt><dd id="failed"><a href="/ui/jobs?conclusion=any_failure">1</a></dd></div>`)
	require.NotRegexp(t, `(?s)<nav aria-label="Main">.*Recovery.*</nav>.*<main`, text, "it is no page for every day")
	require.Regexp(t, `(?s)<nav aria-label="More">.*href="/ui/recovery"`, text)
	require.Contains(t, d.page("/ui/recovery", ada), `<tr data-key="lost_webhook" class="risen">`)
	require.NotContains(t, d.page("/ui/recovery", ada), "Nothing unusual")
}
