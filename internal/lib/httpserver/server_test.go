package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// TEN-3: clients that send headers without end are refused after a few KiB, and the server reads no more of them.
func TestNew_TEN3_HeadersWithoutEndAreRefused(t *testing.T) {
	const clients, length = 100, 900 << 10
	var lines strings.Builder
	for i := 0; lines.Len() < length; i++ {
		lines.WriteString(strconv.FormatInt(int64(i), 36) + ":\r\n")
	}
	public, _, err := Public(http.NotFoundHandler(), listen(t))
	require.NoError(t, err)
	for name, server := range map[string]*http.Server{"any": New(http.NotFoundHandler()), "public": public} {
		t.Run(name, func(t *testing.T) {
			listener := &counting{Listener: listen(t)}
			serve(t, server, listener)
			var sending sync.WaitGroup
			statuses := make(chan int, clients)
			for range clients {
				conn := dial(t, listener)
				sending.Go(func() { _, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: bullpen\r\n" + lines.String())) }) // it is refused in between
				sending.Go(func() {
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil { // its connection was reset, because it did not stop sending
						statuses <- 0
						return
					}
					_ = response.Body.Close()
					statuses <- response.StatusCode
				})
			}
			for range clients {
				require.Contains(t, []int{0, http.StatusRequestHeaderFieldsTooLarge}, await.Receive(t, statuses, "a client is refused"))
			}
			await.Return(t, sending.Wait, "all clients are refused")
			require.Less(t, listener.read.Load(), int64(clients)*2*MaxHeader)
		})
	}
}

// counting counts what a server reads.
type counting struct {
	net.Listener
	read atomic.Int64
}

func (l *counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &counted{conn, l}, err
}

type counted struct {
	net.Conn
	in *counting
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.in.read.Add(int64(n))
	return n, err
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func serve(t *testing.T, server *http.Server, listener net.Listener) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		await.Return(t, serving.Wait, "the server stops")
	})
}

func dial(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(await.Context(t), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
