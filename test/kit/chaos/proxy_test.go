package chaos

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 20 * time.Second

// echo answers every line with itself, and says when a connection has ended and how.
func echo(t *testing.T) (address string, ended <-chan error) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	over := make(chan error, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, err := io.Copy(conn, conn)
				_ = conn.Close()
				over <- err
			}()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String(), over
}

type peer struct {
	net.Conn
	lines *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *peer {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{conn, bufio.NewReader(conn)}
}

// refused returns what a new connection meets. The reset may be there before the dial returns, or only after it.
func refused(t *testing.T, p *Proxy) error {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr())
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return (&peer{conn, bufio.NewReader(conn)}).hear("", patience)
}

// ask sends a line and waits so long for its echo.
func (c *peer) ask(line string, wait time.Duration) error {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return err
	}
	return c.hear(line, wait)
}

func (c *peer) hear(line string, wait time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	got, err := c.lines.ReadString('\n')
	if err == nil && got != line+"\n" {
		return errors.New("heard " + got)
	}
	return err
}

func proxied(t *testing.T) (*Proxy, <-chan error) {
	t.Helper()
	address, ended := echo(t)
	p, err := NewProxy(address)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, ended
}

func TestProxy_CutResetsBothSides(t *testing.T) {
	p, ended := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	require.Equal(t, 1, p.Cut())
	require.ErrorIs(t, c.hear("", patience), syscall.ECONNRESET)
	require.ErrorIs(t, await.Receive(t, ended, "the target's connection ends"), syscall.ECONNRESET)
	require.NoError(t, connect(t, p).ask("two", patience), "the next connection is let through")
	require.NoError(t, until(t.Context(), func() bool { return p.Links() == 1 }))
	require.Equal(t, 2, p.Accepted())
}

func TestProxy_RefusesNewConnectionsOnly(t *testing.T) {
	p, _ := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	p.Set(Conditions{Refuse: true})
	require.ErrorIs(t, refused(t, p), syscall.ECONNRESET)
	require.NoError(t, c.ask("two", patience))
	p.Heal()
	require.NoError(t, connect(t, p).ask("three", patience))
}

func TestProxy_DelaysBothDirections(t *testing.T) {
	p, _ := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	p.Set(Conditions{Delay: 40 * time.Millisecond})
	began := time.Now()
	require.NoError(t, c.ask("two", patience))
	require.GreaterOrEqual(t, time.Since(began), 80*time.Millisecond)
}

func TestProxy_BlackHoleKeepsEverythingBack(t *testing.T) {
	p, ended := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	p.Set(BlackHole)
	require.ErrorIs(t, c.ask("two", 50*time.Millisecond), os.ErrDeadlineExceeded, "no error, no end: silence")
	other := connect(t, p) // the connection seems to be there
	require.ErrorIs(t, other.ask("three", 50*time.Millisecond), os.ErrDeadlineExceeded)
	require.NoError(t, connect(t, p).CloseWrite())
	p.Heal()
	require.NoError(t, c.hear("two", patience), "what was kept back arrives")
	require.NoError(t, other.hear("three", patience))
	require.NoError(t, await.Receive(t, ended, "the target's connection ends"), "the end that was kept back too")
}

// CloseWrite ends the client's direction in order.
func (c *peer) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

func TestProxy_HalfOpen(t *testing.T) {
	p, ended := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	p.Set(Conditions{HoldDown: true})
	require.ErrorIs(t, c.ask("two", 50*time.Millisecond), os.ErrDeadlineExceeded)
	require.NoError(t, c.CloseWrite())
	require.NoError(t, await.Receive(t, ended, "the target's connection ends"), "the target has heard everything, and answered")
	p.Heal()
	require.NoError(t, c.hear("two", patience))

	c = connect(t, p)
	require.NoError(t, c.ask("three", patience))
	p.Set(Conditions{HoldUp: true})
	require.NoError(t, c.Close())
	select {
	case <-ended:
		require.Fail(t, "the target must not hear that the client has gone: its poll hangs")
	case <-time.After(50 * time.Millisecond):
	}
	p.Heal()
	await.Receive(t, ended, "the target's connection ends")
}

func TestProxy_CloseEndsEverything(t *testing.T) {
	p, _ := proxied(t)
	c := connect(t, p)
	require.NoError(t, c.ask("one", patience))
	p.Set(BlackHole)
	_, err := io.WriteString(c, "two\n")
	require.NoError(t, err)
	p.Close()
	p.Close()
	require.Error(t, c.hear("two", patience))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
