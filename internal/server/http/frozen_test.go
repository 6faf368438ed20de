package http_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// gate is closed while reason is not empty.
type gate struct {
	mu      sync.Mutex
	reason  string
	resumed chan struct{}
}

func (g *gate) Frozen() (string, <-chan struct{}, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.resumed, g.reason != ""
}

func (*gate) Suspect() {}

func (g *gate) set(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reason == "" {
		close(g.resumed)
	} else {
		g.resumed = make(chan struct{})
	}
	g.reason = reason
}

// CLAIM-17, POOL-8: while the ledger is frozen nothing is handed out, no removal is granted and no demand is reported;
// GitHub's webhooks are accepted, and the server stays ready.
func TestFrozen_CLAIM17_Answers(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	pod := w.pod("linux-a")
	w.gate.set("a backup was restored")

	status, text := w.get(runnerapi.PathSignals, "controller")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "a backup was restored")
	retire := runnerapi.RetireRequest{Pods: []runnerapi.PodRef{
		{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: "linux"},
		{Namespace: pod.Namespace, Name: pod.Name + "-lost", UID: pod.UID + "-lost", Pool: "linux", Lost: true},
	}}
	status, text = w.call(w.internal.URL, runnerapi.PathRetire, "controller", retire)
	require.Equal(t, http.StatusOK, status)
	var response runnerapi.RetireResponse
	require.NoError(t, json.Unmarshal([]byte(text), &response))
	for _, answer := range response.Answers {
		require.Equal(t, runnerapi.Unknown, answer.Verdict)
		require.Equal(t, "a backup was restored", answer.Reason)
	}
	status, _ = w.hook("workflow_job", queued(2))
	require.Equal(t, http.StatusOK, status)
	status, _ = w.get("/readyz", "")
	require.Equal(t, http.StatusOK, status)

	polled := make(chan int, 1)
	go func() {
		status, _ := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-linux-a", struct{}{})
		polled <- status
	}()
	select {
	case status := <-polled:
		t.Fatalf("a poll was answered with %d", status)
	case <-time.After(100 * time.Millisecond):
	}
	w.gate.set("")
	require.Equal(t, http.StatusOK, await.Receive(t, polled, "the poll is answered"), "and is served when the hold is over")
}
