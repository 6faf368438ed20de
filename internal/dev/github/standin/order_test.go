package standin_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// made is a request as two runners are compared by it: where it went, and the names of what it carried.
type made struct {
	route   string
	query   []string
	members []string // of its body
}

func madeOf(method, path string, body []byte) made {
	address, err := url.Parse(path)
	if err != nil {
		return made{route: method + " " + path}
	}
	out := made{route: route(method, path), query: slices.Sorted(maps.Keys(address.Query()))}
	if status := address.Query().Get("status"); status != "" {
		out.route += " " + status
	}
	var object map[string]any
	if json.Unmarshal(body, &object) == nil {
		out.members = slices.Sorted(maps.Keys(object))
	}
	return out
}

// witness notes the requests of a runner.
type witness struct {
	mu   sync.Mutex
	made []made
}

func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body) // of a request that this process made
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	w.mu.Lock()
	w.made = append(w.made, madeOf(r.Method, r.URL.RequestURI(), body))
	w.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

// ofTheWorker are the requests of a job's worker. It makes them beside the listener's.
var ofTheWorker = regexp.MustCompile(`Receiver/|WorkflowStepsUpdate|blobs|completejob`)

const stepsUpdate = "POST WorkflowStepUpdateService/WorkflowStepsUpdate"

// conversation orders requests so that two runners can be compared: those of the listener, then those of the worker. Of updates of the steps,
// whose number depends on time, the last one counts.
func conversation(all []made) (listener, worker []made) {
	for _, one := range all {
		switch {
		case !ofTheWorker.MatchString(one.route):
			listener = append(listener, one)
		case one.route == stepsUpdate:
			worker = slices.DeleteFunc(worker, func(m made) bool { return m.route == stepsUpdate })
			fallthrough
		default:
			worker = append(worker, one)
		}
	}
	// The first renewal and the first poll while busy are made at once.
	for i := range listener[:max(0, len(listener)-1)] {
		if strings.HasSuffix(listener[i].route, " Busy") && listener[i+1].route == "POST /_services/run/renewjob" {
			listener[i], listener[i+1] = listener[i+1], listener[i]
		}
	}
	return listener, worker
}

// recordedConversation lists the requests of GitHub's runner, corrected for two wrong answers of the recording: connectionData needs no token, and
// the runner runs until it deletes its session.
func recordedConversation(t *testing.T, name string) []made {
	t.Helper()
	var all []made
	refused := 0
	for _, one := range readRecording(t, name) {
		if one.status() == http.StatusUnauthorized && strings.Contains(one.Request.Path, "connectionData") {
			refused++
			continue
		}
		if one.route() == "POST /_services/token" && refused > 0 {
			refused = 0
			continue
		}
		body := one.Request.Body
		all = append(all, madeOf(one.Request.Method, one.Request.Path, body))
	}
	if last := "DELETE /_services/broker/session"; all[len(all)-1].route != last {
		all = append(all, made{route: last})
	}
	return all
}

// The development runner makes the requests that GitHub's runner made of the same job, in the same order, with the same members.
func TestDevelopmentRunner_MakesTheRequestsOfGitHubs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.submit(`
on: push
jobs:
  t:
    runs-on: [self-hosted, linux]
    outputs: {word: "${{ steps.m.outputs.w }}"}
    env: {COLOUR: green}
    steps:
    - {name: greet, run: 'echo "hello $COLOUR"; echo "::warning file=a.go,line=3::careful"'}
    - {id: m, run: 'echo "w=banana" >> "$GITHUB_OUTPUT"; echo "# sum" >> "$GITHUB_STEP_SUMMARY"'}
    - {run: exit 3}
    - {if: always(), run: echo last}
`)
	_, config := w.mintConfig("one", "self-hosted", "linux")
	seen := &witness{}
	r, err := devrunner.New(devrunner.Options{
		JIT: config, WorkDir: t.TempDir(), HTTP: &http.Client{Transport: seen, Timeout: await.Limit},
		FlushEvery: time.Hour, // each log in one piece
	})
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context()))

	wantListener, wantWorker := conversation(recordedConversation(t, "jit-one-job"))
	listener, worker := conversation(seen.made)
	requireSame(t, wantListener, listener)
	requireSame(t, wantWorker, worker)
}

func requireSame(t *testing.T, want, got []made) {
	t.Helper()
	require.Equal(t, routes(want), routes(got))
	for i, one := range want {
		require.Equal(t, one.query, got[i].query, one.route)
		require.Equal(t, one.members, got[i].members, one.route)
	}
}

func routes(all []made) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.route)
	}
	return out
}
