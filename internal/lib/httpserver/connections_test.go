package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// full is a public server whose few connections are all taken, each by a client that has sent some of its request.
func full(t *testing.T, handler http.HandlerFunc, sent string) (listener net.Listener, holders []net.Conn) {
	t.Helper()
	server, listener, err := Public(handler, listen(t))
	require.NoError(t, err)
	listener.(*connections).most = 4
	serve(t, server, listener)
	for range 4 {
		conn := dial(t, listener)
		_, err := io.WriteString(conn, sent)
		require.NoError(t, err)
		holders = append(holders, conn)
	}
	return listener, holders
}

func status(t *testing.T, conn net.Conn) int {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(await.Limit)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

const get = "GET / HTTP/1.1\r\nHost: bullpen\r\n\r\n"

// TEN-3: however a client keeps the server waiting, others are served long before that client's timeout.
func TestPublic_TEN3_ClientsThatHoldConnectionsKeepNoOtherOut(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for name, sent := range map[string]string{
		"nothing":                     "",
		"half of the headers":         "POST / HTTP/1.1\r\nHost: bullpen\r\n",
		"half of the body":            "POST / HTTP/1.1\r\nHost: bullpen\r\nContent-Length: 10\r\n\r\n01234",
		"a request, and no other one": get,
	} {
		t.Run(name, func(t *testing.T) {
			listener, holders := full(t, read, sent)
			if sent == get {
				for _, holder := range holders {
					require.Equal(t, http.StatusOK, status(t, holder))
				}
			}
			before := time.Now()
			conn := dial(t, listener)
			_, err := io.WriteString(conn, get)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status(t, conn))
			require.Less(t, time.Since(before), headerTimeout/2)
		})
	}
}

// TEN-3: a full server closes no connection with a request that it works on, and the next client waits for its turn.
func TestPublic_TEN3_RequestsInWorkAreFinished(t *testing.T) {
	began, finish := make(chan struct{}, 5), make(chan struct{})
	listener, holders := full(t, func(_ http.ResponseWriter, r *http.Request) {
		defer Working(r.Context())()
		began <- struct{}{}
		await.OrEnd(t, finish)
	}, get)
	for range holders {
		await.Receive(t, began, "a request is being worked on")
	}
	conn := dial(t, listener)
	_, err := io.WriteString(conn, get)
	require.NoError(t, err)
	l := listener.(*connections)
	l.mu.Lock()
	stalled := l.stalled(time.Now().Add(time.Hour))
	l.mu.Unlock()
	require.Nil(t, stalled)
	require.Empty(t, began)
	close(finish)
	for _, holder := range append(holders, conn) {
		require.Equal(t, http.StatusOK, status(t, holder))
	}
}

// TEN-3: the connection without progress for longest gives way, after its grace, and at once when its response has been sent.
func TestConnections_TEN3_WhichOneGivesWay(t *testing.T) {
	now := time.Now()
	l := newConnections(listen(t).(*net.TCPListener), 2, func() time.Time { return now })
	accept := func() *connection {
		t.Helper()
		_ = dial(t, l)
		c, err := l.AcceptTCP()
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return l.add(c)
	}
	first := accept()
	now = now.Add(grace / 2)
	second := accept()
	require.Nil(t, accept(), "both have their grace")
	now = now.Add(grace / 2)
	third := accept()
	require.NotNil(t, third)
	require.NotContains(t, l.open, first)
	require.Nil(t, accept())
	require.NoError(t, third.CloseWrite())
	fourth := accept()
	require.NotNil(t, fourth)
	require.NotContains(t, l.open, third)
	require.Contains(t, l.open, second)
	now = now.Add(grace)
	second.progress(false)
	fifth := accept()
	require.NotNil(t, fifth)
	require.NotContains(t, l.open, fourth, "the second has made progress")
	require.NoError(t, fifth.Close())
	require.NotNil(t, accept())
}

// A server that is full can be stopped.
func TestPublic_CloseEndsAcceptThatWaitsForRoom(t *testing.T) {
	asked := make(chan struct{}, 1)
	l := newConnections(listen(t).(*net.TCPListener), 0, func() time.Time {
		select {
		case asked <- struct{}{}:
		default:
		}
		return time.Now()
	})
	_ = dial(t, l)
	ended := make(chan error, 1)
	go func() { // ends with the listener
		_, err := l.Accept()
		ended <- err
	}()
	await.Receive(t, asked, "there is no room")
	require.NoError(t, l.Close())
	require.ErrorIs(t, await.Receive(t, ended, "Accept returns"), net.ErrClosed)
}

func TestPublic_ListensOnTCPOnly(t *testing.T) {
	_, _, err := Public(http.NotFoundHandler(), &counting{})
	require.ErrorContains(t, err, "TCP")
}
