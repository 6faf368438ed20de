package console_test

import (
	"bufio"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

const lastWords = "Step 3 of 9\n\x1b[31mout of memory\x1b[0m " + hostile + "\n\x1b]0;title\x07killed"

// die has a pod run a job and be killed with it; its last lines are stored uncleaned.
func (d *desk) die(job int64, pod, uid, words string) {
	d.t.Helper()
	d.work(pod, uid)
	d.tell(fleet.JobEventStarted, job, func(ev *dispatch.JobEvent) { ev.RunnerName = pod + "-1" })
	code, now := int32(137), time.Now()
	require.NoError(d.t, d.store.PodStopped(d.t.Context(), uid, now, &code))
	require.NoError(d.t, d.store.KeepTail(d.t.Context(), fleet.Tail{
		PodUID: uid, Namespace: "runners", Pod: pod, Pool: "linux-4", EndedAt: now, ExitCode: &code, Reason: "OOMKilled", Text: words, Cut: true,
	}))
}

// NET-5: a job's last lines are shown to users with the right runnerlogs, with how its runner ended; they run nothing and move no terminal.
// Other users see which right they need, on the page that only leads to it, and nothing more.
func TestLog_NET5_LastLinesNeedTheirOwnRight(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7)
	d.die(7, "linux-4-b", podB, lastWords)
	d.tell(fleet.JobEventQueued, 8)
	ada, cleos, bob := d.session(adas), d.session(cleo), d.session(bobs)

	for _, who := range []string{ada, cleos} {
		text := body(t, d.ask("GET", "/ui/jobs/7", who, ""))
		require.Contains(t, text, `href="/ui/jobs/7/log"`)
		require.NotContains(t, text, "out of memory", "the job's page is live, and shared")
	}
	require.NotContains(t, body(t, d.ask("GET", "/ui/jobs/8", ada, "")), "/ui/jobs/8/log", "nothing died of it")

	resp := d.ask("GET", "/ui/jobs/7/log", ada, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	text := body(t, resp)
	for _, want := range []string{"code 137 (SIGKILL)", "OOMKilled", "earlier ones are not kept", "Step 3 of 9\nout of memory " + html.EscapeString(hostile) + "\nkilled"} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "<script>alert")

	resp = d.ask("GET", "/ui/jobs/7/log", cleos, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	text = body(t, resp)
	require.Contains(t, text, "cleo may not get runnerlogs.bullpen.dev: bind the ClusterRole bullpen-admin")
	require.NotContains(t, text, "out of memory")
	require.NotContains(t, text, "OOMKilled")
	resp = d.ask("GET", "/ui/jobs/7/log", bob, "")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.NotContains(t, body(t, resp), "linux-4-b")

	require.Contains(t, body(t, d.ask("GET", "/ui/jobs/8/log", ada, "")), "This job has no known runner")
	require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/jobs/404/log", ada, "").StatusCode)
}

// A job whose runner ended well, or whose lines are not kept any more, says that there is nothing.
func TestLog_SaysWhenNothingIsKept(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7)
	d.work("linux-4-b", podB)
	d.tell(fleet.JobEventStarted, 7, func(ev *dispatch.JobEvent) { ev.RunnerName = "linux-4-b-1" })
	resp := d.ask("GET", "/ui/jobs/7/log", d.session(adas), "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, body(t, resp), "Logs of failed runners are kept for 7 days")
}

// NET-5: a page of last lines is never shared by its viewers: it has no stream, and asks for none.
func TestLog_NET5_IsNeverLive(t *testing.T) {
	d := newDesk(t)
	d.tell(fleet.JobEventQueued, 7)
	d.die(7, "linux-4-b", podB, lastWords)
	ada := d.session(adas)
	require.NotContains(t, body(t, d.ask("GET", "/ui/jobs/7/log", ada, "")), "data-live")
	require.Equal(t, http.StatusNotFound, d.ask("GET", "/ui/stream?view="+url.QueryEscape("/ui/jobs/7/log"), ada, "").StatusCode)
	resp := d.ask("GET", "/ui/stream?view="+url.QueryEscape("/ui/jobs/7"), ada, "")
	require.Equal(t, http.StatusOK, resp.StatusCode, "the job itself has one")
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data: \"") {
			require.NotContains(t, lines.Text(), "out of memory")
			return
		}
	}
	require.Fail(t, "the job's stream says nothing")
}
