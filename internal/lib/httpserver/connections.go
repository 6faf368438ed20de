package httpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections of a public server: with 640 KiB of headers each, they take 160 MiB of the chart's limit of 1 GiB.
	maxConnections = 256
	// publicTimeout is for a whole request, and for its response.
	publicTimeout = 30 * time.Second
	// grace is how long a client may keep a full server waiting. An honest client sends its request in one piece.
	grace = 500 * time.Millisecond
	// lookAgain is how often a full server looks for a connection that it may close.
	lookAgain = 50 * time.Millisecond
)

// Public returns a server that any client can reach, and the listener that it serves on, with a bound on connections. At the bound, a new
// connection takes the place of the one that has been without progress for longest, unless a handler is Working on its request: so clients
// that hold connections keep no other client out.
func Public(handler http.Handler, listener net.Listener) (*http.Server, net.Listener, error) {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, nil, fmt.Errorf("a public server listens on TCP, not on %T", listener)
	}
	server, bounded := New(handler), newConnections(tcp, maxConnections, time.Now)
	server.MaxHeaderBytes = MaxPublicHeader
	server.ReadTimeout, server.WriteTimeout = publicTimeout, publicTimeout
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if c, ok := conn.(*connection); ok && (state == http.StateActive || state == http.StateIdle) { // a request or its response is complete
			c.progress(false)
		}
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	return server, bounded, nil
}

type connectionKey struct{}

// Working keeps the connection of a request until done is called. A handler calls it once it knows its client. Other connections are closed
// when a public server is full.
func Working(ctx context.Context) (done func()) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok { // the server is not public
		return func() {}
	}
	c.progress(true)
	return func() { c.progress(false) }
}

// connections is a listener that knows how long its connections have been without progress.
type connections struct {
	*net.TCPListener
	most    int
	now     func() time.Time
	changed chan struct{} // a connection was closed, or may be
	closed  chan struct{}
	closing sync.Once

	mu   sync.Mutex
	open map[*connection]struct{}
}

func newConnections(listener *net.TCPListener, most int, now func() time.Time) *connections {
	return &connections{
		TCPListener: listener, most: most, now: now,
		changed: make(chan struct{}, 1), closed: make(chan struct{}), open: map[*connection]struct{}{},
	}
}

// Accept returns the next connection once there is room for it. The kernel keeps those after it.
func (l *connections) Accept() (net.Conn, error) {
	accepted, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		if c := l.add(accepted); c != nil {
			return c, nil
		}
		select {
		case <-l.changed:
		case <-look.C:
		case <-l.closed:
			_ = accepted.Close()
			return nil, net.ErrClosed
		}
	}
}

// add returns nil when there is no room.
func (l *connections) add(accepted *net.TCPConn) *connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.open) >= l.most {
		stalled := l.stalled(now)
		if stalled == nil {
			return nil
		}
		delete(l.open, stalled)
		_ = stalled.TCPConn.Close() // to its handler, the client is gone
	}
	c := &connection{TCPConn: accepted, in: l, since: now}
	l.open[c] = struct{}{}
	return c
}

// stalled returns the connection that has been without progress for longest, or nil if none has for long enough.
func (l *connections) stalled(now time.Time) (oldest *connection) {
	for c := range l.open {
		if !c.working && now.Sub(c.since) >= grace && (oldest == nil || c.since.Before(oldest.since)) {
			oldest = c
		}
	}
	return oldest
}

// Close also ends an Accept that waits for room.
func (l *connections) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

func (l *connections) change() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// connection is one of a public server. The fields are guarded by in.mu.
type connection struct {
	*net.TCPConn
	in      *connections
	working bool      // a handler is
	since   time.Time // its last progress
}

func (c *connection) progress(working bool) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.working, c.since = working, c.in.now()
}

// CloseWrite is called after the last response, half a second before Close, for the client to read it. A full server does not wait for that.
func (c *connection) CloseWrite() error {
	c.in.mu.Lock()
	c.working, c.since = false, time.Time{}
	c.in.mu.Unlock()
	c.in.change()
	return c.TCPConn.CloseWrite()
}

// Close makes room. It may be called again.
func (c *connection) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	c.in.change()
	return c.TCPConn.Close()
}
