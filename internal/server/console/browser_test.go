package console_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	"github.com/bullpen-ci/bullpen/test/kit/npm"
)

// browser is a tab of a genuine one. Whatever it complains of fails the test: an error of a script, something that the policy forbids, a
// file that is not there.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string

	mu         sync.Mutex
	complaints []string
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("BULLPEN_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Fail(t, "no Chromium", "scripts/prerequisites.sh chromium installs it; or name one with BULLPEN_CHROMIUM")
	return ""
}

func newBrowser(t *testing.T, d *desk, width, height int64, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	profile, err := os.MkdirTemp("", "console-browser-")
	require.NoError(t, err)
	t.Cleanup(func() { // the browser's last processes may still write into it
		require.Eventually(t, func() bool { return os.RemoveAll(profile) == nil }, 10*time.Second, 20*time.Millisecond)
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(profile), chromedp.WindowSize(int(width), int(height)),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to be root with its sandbox; the pages are our own
	}
	options = append(options, more...)
	limited, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	allocator, cancel := chromedp.NewExecAllocator(limited, options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	b := &browser{t: t, ctx: ctx, url: d.url}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complain("exception: " + e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				b.complain(fmt.Sprintf("console: %v", e.Args))
			}
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
				b.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
			}
		case *page.EventJavascriptDialogOpening:
			b.complain("a dialog: " + e.Message)
		}
	})
	b.run(cdplog.Enable(), runtime.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, false))
	return b
}

func (b *browser) complain(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, what)
}

// content fails the test when the browser has complained.
func (b *browser) content() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.complaints)
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// login gives the browser a session.
func (b *browser) login(cookie string) {
	b.t.Helper()
	b.run(network.SetCookie("bullpen_session", cookie).WithURL(b.url + "/ui/").WithHTTPOnly(true))
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url + path))
	b.shows("main")
}

// shows waits until an element exists. It asks the page itself: chromedp's own waiting uses a copy of the page's nodes, and can hang while
// those are replaced.
func (b *browser) shows(selector string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf(`(() => { const e = document.querySelector(%q); return !!e && e.checkVisibility(); })()`, selector), "there is no "+selector)
}

// keys types into an element.
func (b *browser) keys(selector, keys string) {
	b.t.Helper()
	b.shows(selector)
	b.run(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).focus()`, selector), nil), chromedp.KeyEvent(keys))
}

// live waits until the page is kept up to date.
func (b *browser) live() {
	b.t.Helper()
	b.shows(`#live[data-state=on]`)
}

func eval[T any](b *browser, script string) T {
	b.t.Helper()
	var result T
	b.run(chromedp.Evaluate(script, &result))
	return result
}

func (b *browser) text() string {
	b.t.Helper()
	return eval[string](b, `document.body.innerText`)
}

func (b *browser) eventually(script, why string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var yes bool
		return chromedp.Run(b.ctx, chromedp.Evaluate(script, &yes)) == nil && yes // a page that is being left has no answer
	}, 20*time.Second, 50*time.Millisecond, why)
}

// picture saves a screenshot of the tab, if screenshots were requested.
func (b *browser) picture(name string) {
	b.t.Helper()
	dir := os.Getenv("BULLPEN_PICTURES")
	if dir == "" {
		return
	}
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// prefer sets the visitor's preferred theme, light or dark.
func (b *browser) prefer(theme string) {
	b.t.Helper()
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
}

// inhabited is a desk with something to see.
func inhabited(t *testing.T, change ...func(*console.Options)) *desk {
	t.Helper()
	d := newDesk(t, change...)
	recoveries := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bullpen_recoveries_total", Help: "x"}, []string{"kind"})
	d.counters.MustRegister(recoveries)
	recoveries.WithLabelValues("lost_webhook").Add(3)
	recoveries.WithLabelValues("stale_job").Add(0)
	d.install(2, "globex")
	d.tell(fleet.JobEventQueued, 10, func(ev *dispatch.JobEvent) { ev.Name = "integration" })
	d.die(10, "linux-4-z", "00000000-0000-4000-8000-00000000000f", strings.Repeat("ok   suite/package  0.42s\n", 12)+"linking app: collect2: fatal error: ld terminated with signal 9 [Killed]")
	d.tell(fleet.JobEventCompleted, 10, func(ev *dispatch.JobEvent) { ev.RunnerName, ev.Conclusion = "linux-4-z-1", "failure" })
	for id := int64(1); id <= 6; id++ {
		d.tell(fleet.JobEventQueued, id, func(ev *dispatch.JobEvent) {
			ev.QueuedAt = ev.QueuedAt.Add(-time.Duration(10-id) * time.Second)
			ev.Name = []string{"build", "lint", "test (linux, 1)", "test (linux, 2)", "release", "docs"}[id-1]
		})
	}
	d.work("linux-4-a", podA)
	d.work("linux-4-b", podB)
	d.tell(fleet.JobEventStarted, 1, func(ev *dispatch.JobEvent) {
		ev.RunnerName, ev.StartedAt = "linux-4-a-1", time.Now().Add(3*time.Second)
	})
	d.tell(fleet.JobEventCompleted, 1, func(ev *dispatch.JobEvent) {
		ev.RunnerName, ev.StartedAt, ev.CompletedAt = "linux-4-a-1", time.Now().Add(3*time.Second), time.Now().Add(64*time.Second)
	})
	require.NoError(t, d.store.PodStopped(t.Context(), podA, time.Now(), nil))
	d.past(history.Pool{Namespace: "runners", Name: "linux-4"})
	d.limit("acme", 1)
	d.suspend("globex", "unpaid since May", true)
	return d
}

// The console as a new user sees it: a link logs in, a job appears without a reload and is followed to its end; the focus and typed text
// are left alone.
func TestConsole_IsLive(t *testing.T) {
	d := newDesk(t)
	b := newBrowser(t, d, 1280, 900)
	// The form of the page is marked as it comes, before anything is streamed.
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`document.addEventListener("DOMContentLoaded", () => {
			const form = document.querySelector("form.filter"); if (form) form.marked = true; })`).Do(ctx)
		return err
	}))
	b.open("/ui/jobs?state=queued")
	b.picture("login")
	require.Contains(t, b.text(), "bullpen console")
	b.keys("#token", adas+kb.Enter)
	b.shows("form.filter")
	require.Equal(t, "/ui/jobs?state=queued", eval[string](b, `location.pathname + location.search`))
	require.Empty(t, eval[string](b, `document.cookie`), "scripts cannot read the session")
	b.live()
	require.Contains(t, b.text(), "No job matches")
	b.run(chromedp.Evaluate(`window.stayed = true`, nil))
	b.keys(`input[name=account]`, "ac")

	d.tell(fleet.JobEventQueued, 7)
	b.eventually(`document.body.innerText.includes("build-7")`, "the job does not appear")
	require.True(t, eval[bool](b, `document.querySelector("form.filter").marked`), "the form is another one than came with the page")
	require.True(t, eval[bool](b, `window.stayed && document.activeElement.name === "account" && document.activeElement.value === "ac"`),
		"what was typed is gone")
	b.keys(`a[href="/ui/jobs/7"]`, kb.Shift)
	d.tell(fleet.JobEventQueued, 8)
	b.eventually(`document.body.innerText.includes("build-8")`, "the second job does not appear")
	require.True(t, eval[bool](b, `document.activeElement.getAttribute("href") === "/ui/jobs/7"`), "the focus is gone")

	b.keys(`a[href="/ui/jobs/7"]`, kb.Enter)
	b.shows("#why")
	b.live()
	require.Contains(t, b.text(), "about-to-start")
	d.tell(fleet.JobEventStarted, 7)
	b.eventually(`document.querySelector(".timeline").innerText.includes("running")`, "the step does not appear")
	d.tell(fleet.JobEventCompleted, 7)
	b.eventually(`!!document.querySelector(".lead .state.success")`, "its end does not appear")
	b.eventually(`document.title === "success: build-7 · Bullpen"`, "the title is of another state")

	d.cluster.set(func(c *cluster) { c.revoked = true })
	b.open("/ui/")
	b.shows("#token")
	b.content()
}

// `bullpen console` prints a link; it logs in, and leaves nothing in the address.
func TestConsole_ALinkLogsIn(t *testing.T) {
	d := newDesk(t)
	b := newBrowser(t, d, 1280, 900)
	client, err := cli.NewClient(d.url, func(context.Context) (string, error) { return adas, nil }, 0)
	require.NoError(t, err)
	link, err := client.ConsoleLink(t.Context())
	require.NoError(t, err)
	base, code, found := strings.Cut(link, "#code=")
	require.True(t, found)
	require.Equal(t, d.url+"/ui/login", base, "nothing of the code is sent to a server by opening the link")
	b.run(chromedp.Navigate(link))
	b.shows(".numbers")
	require.Equal(t, b.url+"/ui/", eval[string](b, `location.href`))
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, entries, err := page.GetNavigationHistory().Do(ctx)
		for _, entry := range entries {
			require.NotContains(t, entry.URL, "code=", "the code stays in the browser's history")
		}
		return err
	}))
	b.content()
	require.Equal(t, 401, d.ask("POST", "/ui/login", "", "code="+code).StatusCode, "it was used")
}

// Every page at every size, light and dark: nothing is complained of, nothing is wider than the window, headings and landmarks are there,
// whatever can be used has a name, and text can be read on what is behind it.
func TestConsole_EveryPageIsUsable(t *testing.T) {
	d := inhabited(t)
	ada := d.session(adas)
	pages := map[string]string{
		"/ui/": "At their limit: acme", "/ui/?window=14d": "Queued jobs", "/ui/jobs?ended=true": "test (linux, 1)", "/ui/jobs?conclusion=failure&name=INTEG": "integration", "/ui/jobs/1": "runner connected",
		"/ui/jobs/4": "account-at-limit", "/ui/jobs/404": "unknown-job", "/ui/jobs/10": "Last lines of the runner's log", "/ui/jobs/10/log": "ld terminated with signal 9", "/ui/pools/runners/macs": "paused", "/ui/accounts": "globex", "/ui/pools": "Starved", "/ui/pools/runners/linux-4": "no node has 4 CPUs left",
		"/ui/pools/runners/linux-4?stage=idle": "linux-4-d", "/ui/nodes": "it is tried again", "/ui/accounts/acme": "1 of 1",
		"/ui/accounts/globex": "unpaid since May", "/ui/audit": "set limits",
		"/ui/accounts/acme/limits": "Jobs per repository", "/ui/accounts/acme/suspend": "Cancel", "/ui/accounts/globex/resume": "Resume globex",
		"/ui/pools/runners/linux-4/linux-4-d/retire": "the pool replaces it", "/ui/usage": "Runner hours", "/ui/recovery": "lost webhook", "/ui/login": "Kubernetes token",
	}
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"wide", 1280, 860}, {"phone", 375, 740}} {
		b := newBrowser(t, d, size.width, size.height)
		b.login(ada)
		for path, says := range pages {
			for _, theme := range []string{"light", "dark"} {
				b.prefer(theme)
				b.open(path)
				what := fmt.Sprintf("%s, %s, %s", path, size.name, theme)
				require.Contains(t, b.text(), says, what)
				require.LessOrEqual(t, eval[int64](b, `document.documentElement.scrollWidth`), size.width, what)
				require.Empty(t, eval[[]string](b, unusable), what)
				require.Empty(t, eval[[]string](b, unreadable), what)
				require.Empty(t, b.violations(), what)
				if size.name == "phone" {
					require.Empty(t, eval[[]string](b, cut), what)
				}
				b.picture(strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path), "-") + "-" + size.name + "-" + theme)
			}
		}
		b.content()
	}
}

// unusable names what a user without sight, or without a mouse, could not use.
const unusable = `(() => {
	const wrong = [];
	const one = (selector) => { const n = document.querySelectorAll(selector).length; if (n !== 1) wrong.push(n + " of " + selector); };
	one("main"); one("h1"); one("header");
	if (location.pathname !== "/ui/login") one("footer");
	if (!document.title.endsWith(" · Bullpen") || document.title.startsWith(" ")) wrong.push("no title: " + document.title);
	if (!document.documentElement.lang) wrong.push("no language");
	const levels = [...document.querySelectorAll("h1,h2,h3")].map((h) => +h.nodeName[1]);
	levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) wrong.push("a heading is left out"); });
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	if (new Set(ids).size !== ids.length) wrong.push("an id is there twice: " + ids);
	for (const e of document.querySelectorAll("[aria-labelledby]")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) wrong.push("labelled by nothing");
	for (const e of document.querySelectorAll("a, button, input:not([type=hidden]), select, meter, [role=region], [role=group], nav")) {
		const name = e.getAttribute("aria-label") || (e.labels && e.labels[0] && e.labels[0].innerText) || e.innerText;
		if (!name || !name.trim()) wrong.push("no name: " + e.outerHTML.slice(0, 100));
	}
	for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) wrong.push("no alt");
	for (const e of document.querySelectorAll("th")) if (!e.scope) wrong.push("a heading of a table without scope");
	return wrong;
})()`

// cut names what is partly out of sight on a phone: cells that end beyond the window, columns without their names, and what scrolls sideways.
const cut = `(() => {
	const wrong = [];
	for (const e of document.querySelectorAll("main *")) {
		if (!e.checkVisibility() || e.closest("thead, svg, pre")) continue;
		const box = e.getBoundingClientRect();
		if (box.width && (box.right > innerWidth + 1 || box.left < -1)) wrong.push("beyond the window: " + e.outerHTML.slice(0, 100));
		if (["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1) wrong.push("scrolls: " + e.outerHTML.slice(0, 100));
	}
	for (const e of document.querySelectorAll("main td")) if (!e.dataset.label) wrong.push("a cell without its column's name: " + e.outerHTML.slice(0, 100));
	return wrong;
})()`

// violations are what axe-core finds wrong with the page.
func (b *browser) violations() (found []string) {
	b.t.Helper()
	var reported []struct {
		ID, Help string
		Nodes    []struct{ HTML string }
	}
	b.run(chromedp.Evaluate(npm.Axe(b.t), nil), chromedp.Evaluate(`axe.run(document, {preload: false, resultTypes: ["violations"]}).then((r) => r.violations)`, &reported,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	for _, v := range reported {
		for _, n := range v.Nodes {
			found = append(found, fmt.Sprintf("%s (%s): %.200s", v.ID, v.Help, n.HTML))
		}
	}
	return found
}

// unreadable names text whose contrast is below what WCAG's level AA asks for.
const unreadable = `(() => {
	const wrong = new Set();
	const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return { rgb: n.slice(0, 3), a: n.length > 3 ? n[3] : 1 }; };
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0) return c.rgb; } return [255, 255, 255]; };
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.nodeValue.trim() || !e.checkVisibility() || e.closest("meter, option, svg, .skip")) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(behind(e))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) wrong.add(e.outerHTML.slice(0, 80) + ": " + ((a + 0.05) / (b + 0.05)).toFixed(2));
	}
	return [...wrong];
})()`

// Everything is reached with the Tab key, in the order in which it is read, and is seen to have the focus; the first stop leads past the menu.
func TestConsole_TheKeyboardReachesEverything(t *testing.T) {
	d := inhabited(t)
	b := newBrowser(t, d, 1280, 900)
	b.login(d.session(adas))
	for _, path := range []string{"/ui/jobs?ended=true", "/ui/jobs/10/log", "/ui/accounts/acme", "/ui/accounts/acme/limits", "/ui/login"} {
		b.open(path)
		b.run(chromedp.Evaluate(`document.activeElement.blur()`, nil))
		want := eval[int](b, `document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']").length`)
		require.Greater(t, want, 4)
		if path == "/ui/login" { // it begins in the field for the token
			b.run(chromedp.Evaluate(`document.querySelector(".skip").focus()`, nil))
		} else {
			b.run(chromedp.KeyEvent(kb.Tab))
		}
		require.Equal(t, "Skip to the content", eval[string](b, `document.activeElement.innerText`), path)
		reached, last := 1, -1
		for range want - 1 {
			b.run(chromedp.KeyEvent(kb.Tab))
			at := eval[int](b, `[...document.querySelectorAll("*")].indexOf(document.activeElement)`)
			require.Greater(t, at, last, "%s: the order of stops is not that of reading", path)
			last = at
			require.True(t, eval[bool](b, `(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2; })()`),
				"%s: it is not seen that this has the focus: %s", path, eval[string](b, `document.activeElement.outerHTML`))
			reached++
		}
		require.Equal(t, want, reached)
	}
	b.open("/ui/jobs")
	b.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.eventually(`document.activeElement.id === "content"`, "the first link does not lead to the content")
	b.content()
}

// Foreign text runs nothing in a real browser, whether it comes with the page or later.
func TestConsole_WhatOthersWriteRunsNothing(t *testing.T) {
	d := newDesk(t)
	b := newBrowser(t, d, 1280, 900)
	b.login(d.session(adas))
	b.open("/ui/jobs")
	b.live()
	d.tell(fleet.JobEventQueued, 7, func(ev *dispatch.JobEvent) {
		ev.Name, ev.Workflow, ev.HeadBranch, ev.Labels = hostile, hostile, hostile, []string{hostile}
	})
	b.eventually(`document.body.innerText.includes("<script>alert(1)")`, "the job does not appear")
	b.open("/ui/jobs/7")
	require.Contains(t, b.text(), hostile)
	require.Zero(t, eval[int](b, `document.querySelectorAll("main script, main img").length`))
	b.content()
}
