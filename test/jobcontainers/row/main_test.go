package main

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A forwarded port whose service does not listen yet closes the connection, or resets it.
func TestDial_TriesAgainWhenNothingWasSent(t *testing.T) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	code := make(chan int, 1)
	go func() { code <- dial(listener.Addr().String()) }()
	require.NoError(t, listener.SetDeadline(time.Now().Add(patience)))
	for _, end := range []func(*net.TCPConn) error{
		func(*net.TCPConn) error { return nil },
		func(c *net.TCPConn) error { return c.SetLinger(0) },
		func(c *net.TCPConn) error { _, err := c.Write([]byte("served\n")); return err },
	} {
		connection, err := listener.AcceptTCP()
		require.NoError(t, err)
		require.NoError(t, end(connection))
		require.NoError(t, connection.Close())
	}
	require.Zero(t, await.Receive(t, code, "the end of dial"))
}
