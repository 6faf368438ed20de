package builder

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestClient_TheBuilderMayEnd(t *testing.T) {
	_, err := NewClient(filepath.Join(t.TempDir(), "absent")).Make(t.Context(), Request{}, io.Discard)
	require.ErrorIs(t, err, ErrLost)
	for _, body := range []string{"", `{"output":"x"}` + "\n", "not JSON\n", `{"built":`, strings.Repeat("x", maxEvent+1)} {
		_, err := follow(t.Context(), strings.NewReader(body), io.Discard)
		require.ErrorIs(t, err, ErrLost)
	}
}

// A builder destroys the container if its hook is gone when it has sent the response, so the hook keeps the connection until the response ends.
func TestClient_StaysUntilTheResponseEnds(t *testing.T) {
	proceed := make(chan bool)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assertEncoded(t, w, Event{Built: &Built{Image: "sha256:x"}})
		if !await.Receive(t, proceed, "the test goes on") {
			panic(http.ErrAbortHandler)
		}
		require.NoError(t, r.Context().Err())
	}))
	socket := filepath.Join(t.TempDir(), "s")
	var err error
	_ = server.Listener.Close()
	server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server.Start()
	defer server.Close()
	for _, whole := range []bool{true, false} {
		var built Built
		made := make(chan error, 1)
		go func() {
			var err error
			built, err = NewClient(socket).Make(t.Context(), Request{}, io.Discard)
			made <- err
		}()
		select {
		case <-made:
			require.Fail(t, "the hook does not wait for the response's end")
		case <-time.After(50 * time.Millisecond): // bounded: it would be quicker
		}
		proceed <- whole // bounded: the handler waits for it
		err := await.Receive(t, made, "the response")
		if whole {
			require.NoError(t, err)
			require.Equal(t, "sha256:x", built.Image)
		} else {
			require.ErrorIs(t, err, ErrLost, "the builder may have destroyed the container")
		}
	}
}

func assertEncoded(t *testing.T, w http.ResponseWriter, e Event) {
	require.NoError(t, json.NewEncoder(w).Encode(e))
	require.NoError(t, http.NewResponseController(w).Flush())
}

// FuzzFollow: other processes of the job could be where the builder was.
func FuzzFollow(f *testing.F) {
	f.Add([]byte("{\"output\":\"a\"}\n{\"built\":{\"image\":\"sha256:x\",\"config\":{}}}\n"))
	f.Add([]byte(`{"failure":"no"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = follow(t.Context(), bytes.NewReader(body), io.Discard)
	})
}
