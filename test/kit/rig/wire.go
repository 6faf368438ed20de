package rig

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wire carries connections to a process, and can be cut: to the peers of a process, that is how its death looks. It is safe for concurrent
// use.
type Wire struct {
	listener         net.Listener
	network, address string
	serving          sync.WaitGroup
	ctx              context.Context //nolint:containedctx // the life of its connections
	end              context.CancelFunc

	mu   sync.Mutex
	cut  bool
	ends map[net.Conn]struct{}
}

// NewWire listens on a loopback port, until the end of the test or Cut.
func NewWire(tb testing.TB, network, address string) *Wire {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &Wire{listener: listener, network: network, address: address, ends: map[net.Conn]struct{}{}, ctx: ctx, end: cancel}
	w.serving.Go(w.serve)
	tb.Cleanup(w.Cut)
	return w
}

// DatabaseWire is a wire to a database, and the database's URL by way of it.
func DatabaseWire(tb testing.TB, database string) (*Wire, string) {
	tb.Helper()
	target, err := url.Parse(database)
	require.NoError(tb, err)
	network, address := "tcp", target.Host
	query := target.Query()
	if dir := query.Get("host"); dir != "" {
		network, address = "unix", dir+"/.s.PGSQL.5432"
	}
	w := NewWire(tb, network, address)
	target.Host = w.Addr()
	query.Del("host")
	target.RawQuery = query.Encode()
	return w, target.String()
}

// Addr is where the wire begins.
func (w *Wire) Addr() string { return w.listener.Addr().String() }

// Cut breaks every connection, permanently.
func (w *Wire) Cut() {
	w.mu.Lock()
	w.cut = true
	for end := range w.ends {
		_ = end.Close()
	}
	w.mu.Unlock()
	w.end()
	_ = w.listener.Close()
	w.serving.Wait() // bounded: the listener and all connections are closed above
}

func (w *Wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.serving.Go(func() { w.carry(near) })
	}
}

func (w *Wire) carry(near net.Conn) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(w.ctx, w.network, w.address)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.hold(near, far) {
		return
	}
	defer w.release(near, far)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait() // bounded: far is closed above
}

func (w *Wire) hold(ends ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range ends {
		w.ends[end] = struct{}{}
	}
	return !w.cut
}

func (w *Wire) release(ends ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range ends {
		delete(w.ends, end)
	}
}
