package guard_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// connect is a client that says what it likes.
func (c *container) connect() (net.Conn, *wire.Conn) {
	c.p.Helper()
	raw, err := net.Dial("unix", c.p.socket(c.name))
	require.NoError(c.p, err)
	c.p.Cleanup(func() { _ = raw.Close() })
	return raw, wire.NewConn(raw, wire.MaxData)
}

const catRequest = `{"version":1,"exec":{"process":{"argv":["cat"]},"stdin":true}}`

func TestGuard_EndsConnectionsThatBreakTheProtocol(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	closed := func(what string, send func(raw net.Conn, conn *wire.Conn)) {
		t.Helper()
		raw, conn := c.connect()
		send(raw, conn)
		for {
			kind, _, err := conn.Read(await.Limit)
			if err != nil {
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, what)
				return
			}
			require.NotEqual(t, wire.KindExit, kind, what)
		}
	}
	begin := func(conn *wire.Conn) { require.NoError(t, conn.Write(wire.KindRequest, []byte(catRequest))) }
	closed("noise", func(raw net.Conn, _ *wire.Conn) { _, _ = raw.Write(bytes.Repeat([]byte("noise"), 1000)) })
	closed("no request first", func(_ net.Conn, conn *wire.Conn) { _ = conn.Write(wire.KindPing, nil) })
	closed("no JSON", func(_ net.Conn, conn *wire.Conn) { _ = conn.Write(wire.KindRequest, []byte("{")) })
	closed("stdin that was not announced", func(_ net.Conn, conn *wire.Conn) {
		_ = conn.Write(wire.KindRequest, []byte(`{"version":1,"exec":{"process":{"argv":["sleep","600"]}}}`))
		_ = conn.Write(wire.KindStdin, []byte("x"))
	})
	closed("more stdin than was asked for", func(_ net.Conn, conn *wire.Conn) {
		require.NoError(t, conn.Write(wire.KindRequest, []byte(`{"version":1,"exec":{"process":{"argv":["sleep","600"]},"stdin":true}}`)))
		for range 20 {
			if conn.Write(wire.KindStdin, make([]byte, wire.MaxData)) != nil {
				break
			}
		}
	})
	closed("stdin after its end", func(_ net.Conn, conn *wire.Conn) {
		_ = conn.Write(wire.KindRequest, []byte(`{"version":1,"exec":{"process":{"argv":["sleep","600"]},"stdin":true}}`))
		_ = conn.Write(wire.KindStdin, nil)
		_ = conn.Write(wire.KindStdin, nil)
	})
	closed("a frame of the guard", func(_ net.Conn, conn *wire.Conn) { begin(conn); _ = conn.Write(wire.KindStdout, []byte("x")) })
	closed("signal 0", func(_ net.Conn, conn *wire.Conn) { begin(conn); _ = conn.Write(wire.KindSignal, []byte{0}) })
	closed("a second request", func(_ net.Conn, conn *wire.Conn) { begin(conn); begin(conn) })
	c.requireEmpty()
	require.Equal(t, "on\n", c.sh("echo on").stdout)
	require.Less(t, c.peak(), guardMemory)
}

// Connections that say nothing, and there are more of them than the guard serves at a time, hold others up for seconds, not for ever.
func TestGuard_SilentConnectionsGoAway(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	for range 80 {
		c.connect()
	}
	start := time.Now()
	require.Equal(t, "on\n", c.sh("echo on").stdout)
	require.Less(t, time.Since(start), 40*time.Second)
}

func TestGuard_ServesManyAtOnce(t *testing.T) {
	t.Parallel()
	c := newPod(t).add("job")
	results := make(chan error, 30)
	for i := range 30 {
		go func() {
			var out bytes.Buffer
			exit, err := c.Exec(t.Context(), shell(fmt.Sprintf("sleep 0.1; echo %d; exit %d", i, i)), client.Streams{Stdout: &out})
			if err == nil && (exit.Code != i || out.String() != fmt.Sprintln(i)) {
				err = fmt.Errorf("process %d: %+v %q", i, exit, out.String())
			}
			results <- err
		}()
	}
	for range 30 {
		require.NoError(t, await.Receive(t, results, "a process"))
	}
	c.requireEmpty()
}
