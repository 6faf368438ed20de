package realnode

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

// forward passes connections on until ctx ends: the way from GitHub into the cluster, where an ingress would be.
func forward(ctx context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait() // bounded: ctx ends them
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer func() { _ = conn.Close() }()
			inside, err := dial(ctx)
			if err != nil {
				return
			}
			defer func() { _ = inside.Close() }()
			defer context.AfterFunc(ctx, func() {
				_ = conn.Close()
				_ = inside.Close()
			})()
			conns.Go(func() {
				_, _ = io.Copy(inside, conn)
				_ = inside.Close()
			})
			_, _ = io.Copy(conn, inside)
		})
	}
}

// gate holds jobs: each connects, sends its name, and continues when it receives "go" over the same
// connection.
type gate struct {
	listener net.Listener
	conns    sync.WaitGroup

	mu     sync.Mutex
	held   map[string]net.Conn
	broken []string // whose connection ended while they were held
}

func openGate(t testing.TB) *gate {
	g := &gate{listener: listen(t), held: map[string]net.Conn{}}
	g.conns.Go(func() {
		for {
			conn, err := g.listener.Accept()
			if err != nil {
				return
			}
			g.conns.Go(func() { g.hold(conn) })
		}
	})
	t.Cleanup(func() {
		_ = g.listener.Close()
		g.open("")
		await.Return(t, g.conns.Wait, "the held jobs' connections end")
	})
	return g
}

func (g *gate) hold(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	name := lines.Text()
	g.mu.Lock()
	g.held[name] = conn
	g.mu.Unlock()
	_, _ = io.Copy(io.Discard, conn) // until the job is done
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[name] == conn {
		delete(g.held, name)
		g.broken = append(g.broken, name)
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// open releases all that are held, and returns which those were. Another word than "go" makes them fail.
func (g *gate) open(word string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name, conn := range g.held {
		names = append(names, name)
		delete(g.held, name)
		if _, err := fmt.Fprintln(conn, word); err != nil || word != "go" {
			_ = conn.Close()
		}
	}
	return names
}

// drop forgets a job whose machine has ended, whether its connection has broken by then or is silent.
func (g *gate) drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = slices.DeleteFunc(g.broken, func(broken string) bool { return broken == name })
	if conn := g.held[name]; conn != nil {
		delete(g.held, name)
		_ = conn.Close()
	}
}

func (g *gate) holds(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[name] != nil
}

func (g *gate) lost() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string{}, g.broken...)
}
