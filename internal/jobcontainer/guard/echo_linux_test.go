package guard_test

import (
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// tcpEcho returns the port of a server on the loopback address that sends back what it gets, when that has ended.
func tcpEcho(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			content, _ := io.ReadAll(conn)
			_, _ = conn.Write(content)
			_ = conn.Close()
		}
	}()
	return port(t, listener.Addr().String())
}

// udpEcho is tcpEcho for each datagram.
func udpEcho(t *testing.T) uint16 {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}()
	return port(t, conn.LocalAddr().String())
}

// freePort is a port that was free a moment ago, for both protocols.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return port(t, listener.Addr().String())
}

func port(t *testing.T, address string) uint16 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	return uint16(n)
}

// echoed sends a text to a port and returns the answer.
func echoed(t *testing.T, protocol string, to uint16, text string) string {
	t.Helper()
	conn, err := net.Dial(protocol, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(to))))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(await.Limit)))
	_, err = conn.Write([]byte(text))
	require.NoError(t, err)
	if stream, ok := conn.(*net.TCPConn); ok {
		require.NoError(t, stream.CloseWrite())
		content, err := io.ReadAll(stream)
		require.NoError(t, err)
		return string(content)
	}
	buffer := make([]byte, 2048)
	n, err := conn.Read(buffer)
	require.NoError(t, err)
	return string(buffer[:n])
}
