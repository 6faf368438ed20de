package onebox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func step(number int, name, status, conclusion string, lines ...string) standin.StepLog {
	return standin.StepLog{StepView: standin.StepView{Number: number, Name: name, Status: status, Conclusion: conclusion}, Lines: lines}
}

func TestLogPrinter_GroupsLinesByStep(t *testing.T) {
	var out bytes.Buffer
	p := logPrinter{out: &out, have: map[int]int{}, ended: map[int]bool{}}
	print := func(steps ...standin.StepLog) string {
		t.Helper()
		out.Reset()
		require.NoError(t, p.print(steps))
		return out.String()
	}
	setUp, waiting := step(1, "Set up job", "completed", "success"), step(3, "Run make test", "queued", "")
	require.Equal(t, "==> Set up job\n==> Run make\nmake\n", print(setUp, step(2, "Run make", "in_progress", "", "make"), waiting))
	require.Equal(t, "cc a.c\ncc b.c\n", print(setUp, step(2, "Run make", "in_progress", "", "cc a.c", "cc b.c"), waiting), "the name is there already")
	require.Empty(t, print(setUp, step(2, "Run make", "in_progress", ""), waiting))
	require.Equal(t, map[int]int{1: 0, 2: 3}, p.have, "what the next request says")
	require.Equal(t, "==> Run make test\nok\n", print(setUp, step(2, "Run make", "completed", "success"), step(3, "Run make test", "in_progress", "", "ok")))
	require.Equal(t, "==> Run make (continued)\nlate\n==> Run make test (continued)\nFAIL\n==> Run make test: failure\n==> Run clean: skipped\n",
		print(setUp, step(2, "Run make", "completed", "success", "late"), step(3, "Run make test", "completed", "failure", "FAIL"), step(4, "Run clean", "completed", "skipped")))
	require.Empty(t, print(setUp, step(3, "Run make test", "completed", "failure"), step(4, "Run clean", "completed", "skipped")), "a conclusion is printed once")
	require.ErrorContains(t, (&logPrinter{out: brokenPipe{}, have: map[int]int{}}).print([]standin.StepLog{setUp}), "writing the log")
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// scripted is a client of a server whose responses are a job's life. Nil stands for a connection that breaks.
func scripted(t *testing.T, views ...*standin.JobLogView) (client *Client, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := len(*asked)
		*asked = append(*asked, r.URL.Query().Get("have"))
		if at >= len(views) {
			http.Error(w, `{"message": "nothing more was to be asked"}`, http.StatusTeapot)
			return
		}
		if views[at] == nil {
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(views[at]) // the client sees
	}))
	t.Cleanup(server.Close)
	// A connection that is used again would hide that the former one broke: the transport repeats a request then.
	bounded := &http.Client{Timeout: await.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
	return &Client{github: &standin.AdminClient{URL: server.URL, HTTP: bounded}, dir: "/state", running: func() bool { return true }}, asked
}

func jobAt(status, conclusion string, steps ...standin.StepLog) *standin.JobLogView {
	return &standin.JobLogView{Job: standin.JobView{ID: 5, Name: "build", Status: status, Conclusion: conclusion}, Steps: steps}
}

func TestClient_JobLogIsFollowedUntilTheJobCompletes(t *testing.T) {
	client, asked := scripted(t,
		jobAt("queued", ""),
		jobAt("in_progress", "", step(1, "Run make", "in_progress", "", "one", "two")),
		nil,
		jobAt("in_progress", "", step(1, "Run make", "in_progress", "", "three")),
		jobAt("completed", "failure", step(1, "Run make", "completed", "failure", "four")),
	)
	var out, notes bytes.Buffer
	require.NoError(t, client.JobLog(await.Context(t), 5, true, &out, &notes))
	require.Equal(t, "==> Run make\none\ntwo\nthree\nfour\n==> Run make: failure\n", out.String())
	require.Equal(t, "Job 5 (build) is queued. Waiting for it to start.\nJob 5 (build) completed: failure.\n", notes.String())
	require.Equal(t, []string{"", "", "1:2", "1:2", "1:3"}, *asked, "lines that were printed are not sent again")
}

func TestClient_JobLogEndsWithItsReader(t *testing.T) {
	client, _ := scripted(t, jobAt("in_progress", "", step(1, "Run make", "in_progress", "", "one")), nil)
	ctx, interrupt := context.WithCancel(await.Context(t))
	defer interrupt()
	require.NoError(t, client.JobLog(ctx, 5, true, writer(func([]byte) { interrupt() }), io.Discard), "Ctrl-C is no error")

	client, _ = scripted(t, jobAt("in_progress", ""), nil)
	client.running = func() bool { return false }
	err := client.JobLog(await.Context(t), 5, true, io.Discard, io.Discard)
	require.ErrorContains(t, err, "`bullpen up` in /state has stopped")
}

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) { w(text); return len(text), nil }

func TestClient_JobLogOfOneMoment(t *testing.T) {
	uploaded := jobAt("completed", "success")
	uploaded.Text = "all of it\n"
	reasoned := jobAt("completed", "failure")
	reasoned.Job.Reason = "there is no runner group"
	for name, c := range map[string]struct {
		view      *standin.JobLogView
		out, says string
	}{
		"running":            {jobAt("in_progress", "", step(1, "Run make", "in_progress", "", "one")), "==> Run make\none\n", ""},
		"completed":          {jobAt("completed", "success", step(1, "Run make", "completed", "success", "one")), "==> Run make\none\n", ""},
		"without steps":      {uploaded, "all of it\n", ""},
		"queued":             {jobAt("queued", ""), "", "job 5 (build) has no log yet: it is queued. `bullpen job 5 --log --follow` waits for it"},
		"waiting":            {jobAt("waiting", ""), "", "it is pending approval"},
		"never had a runner": {reasoned, "", "job 5 (build) has no log: it completed with conclusion failure (there is no runner group)"},
	} {
		t.Run(name, func(t *testing.T) {
			client, asked := scripted(t, c.view)
			var out bytes.Buffer
			err := client.JobLog(t.Context(), 5, false, &out, io.Discard)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.Equal(t, c.out, out.String())
			require.Len(t, *asked, 1)
		})
	}
}

// The same against the stand-in itself, as far as it goes without a runner.
func TestClient_JobLogOfAJobWithoutARunner(t *testing.T) {
	client, github, _ := connected(t)
	_, err := client.Run(t.Context(), RunOptions{File: workflowOf(twoJobs)})
	require.NoError(t, err)
	jobs, err := github.Admin.Jobs(t.Context(), 0, "queued")
	require.NoError(t, err)
	require.ErrorContains(t, client.JobLog(t.Context(), jobs[0].ID, false, io.Discard, io.Discard), "it is queued")
	var notes bytes.Buffer
	cancel := writer(func(text []byte) {
		notes.Write(text)
		if err := github.CancelJob(jobs[0].ID); err != nil {
			t.Errorf("cancelling the job: %v", err)
		}
	})
	require.ErrorContains(t, client.JobLog(await.Context(t), jobs[0].ID, true, io.Discard, cancel), "has no log: it completed with conclusion cancelled")
	require.Contains(t, notes.String(), "(build) is queued. Waiting for it to start.")
	require.ErrorContains(t, client.JobLog(t.Context(), 7, true, io.Discard, io.Discard), "job 7 not found")
}

func TestFailedLogs_HaveTheLastLinesOfFailedSteps(t *testing.T) {
	var many []string
	for i := range 30 {
		many = append(many, strconv.Itoa(i))
	}
	began := epoch
	failed := standin.JobView{ID: 5, Name: "build", Conclusion: "failure", StartedAt: &began}
	passed, never := failed, failed
	passed.Conclusion, never.StartedAt = "success", nil
	view := jobAt("completed", "failure", step(1, "Set up job", "completed", "success", "ready"), step(2, "Run make", "completed", "failure", many...))
	client, asked := scripted(t, view, nil)
	says := failedLogs(t.Context(), client.github, []standin.JobView{passed, never, failed, failed})
	require.Equal(t, append([]string{`log of job build, step "Run make", last 20 lines:`}, indented(many[10:])...), says)
	require.Len(t, *asked, 2, "a log that cannot be read is left out")

	client, asked = scripted(t, view, view, view, view, view, view)
	failedLogs(t.Context(), client.github, []standin.JobView{failed, failed, failed, failed, failed, failed})
	require.Len(t, *asked, failedJobs)
}

func indented(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, "  "+line)
	}
	return out
}
