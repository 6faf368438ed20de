package standin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-github/v88/github"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// endpointData is the data of the job's endpoint.
func (r *runner) endpointData() map[string]any {
	endpoint := r.job["resources"].(map[string]any)["endpoints"].([]any)[0].(map[string]any)
	return endpoint["data"].(map[string]any)
}

// dialFeed connects to the feed as the job's runner does, or as another.
func (r *runner) dialFeed(token string) (*websocket.Conn, int, error) {
	dialer := websocket.Dialer{HandshakeTimeout: await.Limit}
	conn, response, err := dialer.DialContext(r.t.Context(), r.endpointData()["FeedStreamUrl"].(string), http.Header{"Authorization": {"Bearer " + token}})
	if response != nil {
		_ = response.Body.Close()
		return conn, response.StatusCode, err
	}
	return conn, 0, err
}

// The log of a running job can be watched: lines arrive by the feed. The uploaded log replaces them.
func TestFeed_IsTheLogWhileTheJobRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	id := w.job(run, "build").ID
	update := func(status int) {
		require.Equal(t, http.StatusOK, r.call("POST", r.results+"twirp/github.actions.results.api.v1.WorkflowStepUpdateService/WorkflowStepsUpdate", r.jobToken, map[string]any{
			"workflow_job_run_backend_id": r.jobID, "workflow_run_backend_id": r.planID, "change_order": 1,
			"steps": []map[string]any{{"external_id": "s1", "number": 1, "name": "Run it", "status": status}},
		}, nil))
	}
	update(3)
	_, code, err := r.dialFeed(r.token)
	require.Error(t, err, "it takes the token of a job")
	require.Equal(t, http.StatusForbidden, code)
	conn, _, err := r.dialFeed(r.jobToken)
	require.NoError(t, err)
	say := func(start int, lines ...string) {
		require.NoError(t, conn.WriteJSON(map[string]any{"count": len(lines), "value": lines, "stepId": "S1", "startLine": start}))
	}
	log := func() string {
		text, _ := w.in.Admin.JobLog(w.ctx, id) // there is none before the first line
		return text
	}
	say(1, "first", "second")
	say(2, "second", "third") // sent again after a connection that broke
	w.eventually(func() bool { return log() == "first\nsecond\nthird\n" }, "the live log")
	r.upload("GetStepLogsSignedBlobURL", "s1", "Z first\nZ second\nZ third\nZ fourth\n")
	require.Equal(t, "Z first\nZ second\nZ third\nZ fourth\n", log(), "more was uploaded by now")
	say(5, "fifth")
	w.eventually(func() bool { return strings.HasSuffix(log(), "fifth\n") }, "the line after those")
	r.upload("GetJobLogsSignedBlobURL", "", "whole\n")
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	require.Equal(t, "whole\n", log())

	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"count": 2, "value": ["one"], "stepId": "s1"}`)))
	_, _, err = conn.ReadMessage()
	require.True(t, websocket.IsCloseError(err, websocket.CloseInvalidFramePayloadData), "a message that does not hold what it says: %v", err)
}

// A stand-in that stops does not wait for runners to hang up.
func TestFeed_EndsWithTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.submit(oneJob)
	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	conn, _, err := r.dialFeed(r.jobToken)
	require.NoError(t, err)
	await.Return(t, w.in.Close, "the server's end")
	_, _, err = conn.ReadMessage()
	require.Error(t, err)
}

func TestFeed_TheDevelopmentRunnerSendsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	finish := t.TempDir() + "/go"
	run := w.submit(fmt.Sprintf(`
on: push
jobs:
  t: {runs-on: [self-hosted, linux], steps: [{run: 'echo "watch me"; echo "::add-mask::hushed"; echo hushed; until [ -e %s ]; do sleep 0.02; done'}]}
`, finish))
	_, config := w.mintConfig("one", "self-hosted", "linux")
	r, err := devrunner.New(devrunner.Options{JIT: config, WorkDir: t.TempDir()})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(w.ctx) }()
	id := w.job(run, "t").ID
	w.eventually(func() bool {
		text, _ := w.in.Admin.JobLog(w.ctx, id)
		return strings.Contains(text, "watch me\n") && strings.Contains(text, "***\n")
	}, "the line of the step that still runs")
	text, err := w.in.Admin.JobLog(w.ctx, id)
	require.NoError(t, err)
	require.NotContains(t, text, "hushed\n")
	require.NoError(t, writeFile(finish, ""))
	require.NoError(t, await.Receive(t, ended, "the runner's end"))
}

const proving = `
on: push
permissions: {contents: read%s}
jobs:
  build:
    runs-on: [self-hosted, linux]
    steps: [{run: 'echo "url=${ACTIONS_ID_TOKEN_REQUEST_URL:-none}"'}]
`

// A token of a job proves to others which job it is: they find the key under the issuer's address.
func TestIDToken_ProvesWhichJobItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	run := w.submit(fmt.Sprintf(proving, ", id-token: write"))
	r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
	where := r.endpointData()["GenerateIdTokenUrl"].(string)
	require.Contains(t, where, "?", "clients append &audience=")
	var answer struct {
		Count int
		Value string
	}
	require.Equal(t, http.StatusOK, r.call("GET", where+"&audience=vault", r.jobToken, nil, &answer))
	require.Equal(t, len(answer.Value), answer.Count)
	// As others verify it, from the issuer's address on.
	issuer, err := oidc.NewProvider(t.Context(), w.in.URL+"/_services/oidc")
	require.NoError(t, err)
	proof, err := issuer.Verifier(&oidc.Config{ClientID: "vault", Now: w.clock.Now}).Verify(t.Context(), answer.Value)
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, proof.Claims(&claims))
	require.Equal(t, "repo:acme/app:ref:refs/heads/main", claims["sub"])
	require.Equal(t, fmt.Sprint(run.ID), claims["run_id"])
	require.Equal(t, "self-hosted", claims["runner_environment"])

	require.Equal(t, http.StatusForbidden, r.call("GET", where, r.token, nil, nil), "a runner's token is no job's")
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))
	require.Equal(t, http.StatusForbidden, r.call("GET", where, r.jobToken, nil, nil), "the job has ended")
}

// A job that does not ask for the permission does not have it.
func TestIDToken_NeedsThePermission(t *testing.T) {
	t.Parallel()
	for permission, may := range map[string]bool{"": false, ", id-token: none": false, ", id-token: write": true} {
		w := newWorld(t, nil)
		w.submit(fmt.Sprintf(proving, permission))
		r := w.mint("one", "self-hosted", "linux").start(w.clock.Now()).take()
		_, offered := r.endpointData()["GenerateIdTokenUrl"]
		require.Equal(t, may, offered, permission)
		if !may {
			require.Equal(t, http.StatusForbidden, r.call("GET", w.in.URL+"/_services/oidc/token?job="+r.jobID, r.jobToken, nil, nil))
		}
	}
}

// A runner's group is identified by its name, in its settings as in the job's.
func TestMessage_NamesTheRunnersGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *standin.Options) { o.Installations[0].RunnerGroups = []string{"builders"} })
	w.submit(oneJob)
	config := must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", &github.GenerateJITConfigRequest{
		Name: "one", RunnerGroupID: 2, Labels: []string{"self-hosted", "linux"},
	}))
	r := newRunner(t, config).start(w.clock.Now()).take()
	group, err := json.Marshal(r.job["variables"].(map[string]any)["system.runnerGroupName"])
	require.NoError(t, err)
	require.JSONEq(t, `{"value": "builders"}`, string(group))
}
