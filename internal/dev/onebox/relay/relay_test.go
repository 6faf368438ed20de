package relay

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// serve runs a relay, and returns its address and its result, once it was stopped.
func serve(t *testing.T, to string) (at string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- Serve(ctx, listener, to, slog.New(slog.DiscardHandler)) }()
	return listener.Addr().String(), cancel, result
}

func dial(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func TestServe_PassesBothWaysAndTheEndOfOne(t *testing.T) {
	server := listen(t)
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		said, _ := io.ReadAll(conn) // until the client's end, which has to arrive
		_, _ = conn.Write(append([]byte("heard "), said...))
	}()
	at, stop, ended := serve(t, server.Addr().String())
	conn := dial(t, at)
	_, err := conn.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "heard hello", string(said))
	stop()
	require.NoError(t, await.Receive(t, ended, "the relay ends"))
}

func TestServe_StopsWithConnectionsOpen(t *testing.T) {
	server := listen(t)
	defer server.Close()
	at, stop, ended := serve(t, server.Addr().String())
	conn := dial(t, at)
	_, err := server.Accept()
	require.NoError(t, err)
	stop()
	require.NoError(t, await.Receive(t, ended, "the relay ends"))
	_, err = io.ReadAll(conn)
	_ = err // a reset is an end, too
}

func TestServe_ClosesWhatItCannotPassOn(t *testing.T) {
	gone := listen(t)
	to := gone.Addr().String()
	require.NoError(t, gone.Close())
	at, stop, ended := serve(t, to)
	conn := dial(t, at)
	said, _ := io.ReadAll(conn)
	require.Empty(t, said)
	stop()
	require.NoError(t, await.Receive(t, ended, "the relay ends"))
}
