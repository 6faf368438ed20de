package kubeletapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestExec(t *testing.T) {
	w := newWorld(t)
	token := w.user("get proxy", "create proxy")
	for _, code := range []int{0, 1, 42} {
		var out, errs bytes.Buffer
		err := w.run(t.Context(), token, synthetic.Script("complaint", code), remotecommand.StreamOptions{
			Stdin: strings.NewReader("from stdin"), Stdout: &out, Stderr: &errs,
		})
		var exit exec.CodeExitError
		if code == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorAs(t, err, &exit)
			require.Equal(t, code, exit.Code)
		}
		require.Equal(t, "from stdin", out.String())
		require.Equal(t, "complaint", errs.String())
	}
	require.Contains(t, w.log.String(), "running a command for a user")
	require.Contains(t, w.log.String(), "user=ada")
	require.NotContains(t, w.log.String(), "complaint", "a command may hold a secret")
	require.NotContains(t, w.log.String(), token)

	require.NoError(t, w.machine.Exit("u", "main", 0))
	err := w.run(t.Context(), token, synthetic.Script("x", 0), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	require.ErrorContains(t, err, "it has exited")
}

// An error about a request for streams quotes its headers, except for credentials.
func TestExec_ShowsNobodyTheToken(t *testing.T) {
	w := newWorld(t)
	token := w.user("create proxy")
	w.headers = http.Header{"X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	code, body := w.get("/exec/ns/p/main?command=x&output=1", token)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "missing upgrade headers")
	require.NotContains(t, body, token)
}

// A WebSocket does what SPDY does, up to the protocol that nodes are spoken to by.
func TestExec_ByWebSocket(t *testing.T) {
	w := newWorld(t)
	config := &rest.Config{Host: w.url, BearerToken: w.user("create proxy"), TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(w.serving.cert)}}
	query := url.Values{"command": synthetic.Script("complaint", 7), "output": {"1"}, "error": {"1"}}
	executor, err := remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, w.url+"/exec/ns/p/u/main?"+query.Encode(), "v4.channel.k8s.io")
	require.NoError(t, err)
	var errs bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &errs})
	var exit exec.CodeExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.Code)
	require.Equal(t, "complaint", errs.String())
}

// A command is ended when its client disconnects, although it neither reads nor writes.
func TestExec_EndsWithItsCaller(t *testing.T) {
	w := newWorld(t)
	token := w.user("create proxy")
	started, ended := make(chan struct{}), make(chan error, 1)
	w.sandbox.run = func(ctx context.Context, _ sandbox.Streams) (int, error) {
		close(started)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return 0, context.Cause(ctx)
	}
	code, _ := w.get("/healthz", token)
	require.Equal(t, http.StatusForbidden, code)
	before := runtime.NumGoroutine()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.run(ctx, token, []string{"wait"}, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	}()
	await.Receive(t, started, "the command starts")
	leave()
	require.ErrorIs(t, await.Receive(t, ended, "the command is ended"), errClientGone)
	require.Error(t, await.Receive(t, done, "the client returns"))
	awaitGoroutines(t, before)
}

// A caller who reads nothing of what a command writes does not keep the node agent from ending.
func TestExec_ServerEndsAlthoughACallerDoesNotRead(t *testing.T) {
	w := newWorld(t)
	token := w.user("create proxy")
	w.sandbox.run = func(_ context.Context, streams sandbox.Streams) (int, error) {
		for text := make([]byte, 1<<20); ; { // until the client is gone, as a sandbox passes on a command's output
			if _, err := streams.Out.Write(text); err != nil {
				return 0, err
			}
		}
	}
	stuck := &stuckWriter{reached: make(chan struct{}), leave: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		done <- w.run(t.Context(), token, []string{"flood"}, remotecommand.StreamOptions{Stdout: stuck, Stderr: io.Discard})
	}()
	await.Receive(t, stuck.reached, "output reaches the client")
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Error("the server waits for a client that does not read")
	}
	close(stuck.leave)
	await.Receive(t, done, "the client returns")
}
