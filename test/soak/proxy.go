package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// backend is one address behind a proxy.
type backend struct {
	network, address string
	ready            func(ctx context.Context) error // nil: always
	unfit            atomic.Int32                    // checks that failed in a row
}

// proxy passes connections on to one of its backends, as a Service or a load balancer does, and breaks them on request.
type proxy struct {
	Address  string
	listener net.Listener
	backends []*backend
	tasks    sync.WaitGroup
	cancel   context.CancelFunc
	ctx      context.Context

	mu      sync.Mutex
	conns   map[net.Conn]bool
	refuse  bool
	stalled chan struct{} // non-nil: nothing passes until it is closed
}

// A backend is left out after a number of failed checks, one every healthEvery.
const (
	unfitAfter  = 2
	healthEvery = time.Second
)

func startProxy(ctx context.Context, address string, backends ...*backend) (*proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for a proxy: %w", err)
	}
	p := &proxy{Address: listener.Addr().String(), listener: listener, backends: backends, conns: map[net.Conn]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.tasks.Go(p.accept)
	for _, b := range backends {
		if b.ready != nil {
			p.tasks.Go(func() { p.watch(b) })
		}
	}
	return p, nil
}

func (p *proxy) close() {
	p.cancel()
	_ = p.listener.Close()
	p.resume()
	p.cut()
	p.tasks.Wait()
}

func (p *proxy) watch(b *backend) {
	for pause(p.ctx, healthEvery) {
		ctx, cancel := context.WithTimeout(p.ctx, healthEvery)
		if b.ready(ctx) != nil {
			b.unfit.Add(1)
		} else {
			b.unfit.Store(0)
		}
		cancel()
	}
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse || p.ctx.Err() != nil
		p.mu.Unlock()
		if refuse {
			_ = conn.Close()
			continue
		}
		p.tasks.Go(func() { p.serve(conn) })
	}
}

// dial tries the backends in random order, those that are fit first.
func (p *proxy) dial() (net.Conn, error) {
	var fit, others []*backend
	for _, i := range rand.Perm(len(p.backends)) {
		if b := p.backends[i]; b.unfit.Load() < unfitAfter {
			fit = append(fit, b)
		} else {
			others = append(others, b)
		}
	}
	dialer := net.Dialer{Timeout: 3 * time.Second}
	err := errors.New("no backend")
	for _, b := range append(fit, others...) {
		var conn net.Conn
		if conn, err = dialer.DialContext(p.ctx, b.network, b.address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (p *proxy) serve(from net.Conn) {
	defer from.Close()
	to, err := p.dial()
	if err != nil {
		return
	}
	defer to.Close()
	p.mu.Lock()
	p.conns[from], p.conns[to] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
		delete(p.conns, to)
	}()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(&gate{p: p, to: way[1]}, way[0])
			_ = from.Close() // half-closed connections are of no use to HTTP or Postgres
			_ = to.Close()
		})
	}
	both.Wait()
}

// gate writes when the proxy is not stalled.
type gate struct {
	p  *proxy
	to net.Conn
}

// Write passes data on.
func (g *gate) Write(data []byte) (int, error) {
	g.p.mu.Lock()
	stalled := g.p.stalled
	g.p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	return g.to.Write(data)
}

// cut breaks every connection, in the middle of a transfer.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if tcp, is := conn.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // a reset, not an orderly end
		}
		_ = conn.Close()
	}
}

// away cuts every connection and takes no new one for a while.
func (p *proxy) away(ctx context.Context, length time.Duration) {
	p.setRefuse(true)
	p.cut()
	pause(ctx, length)
	p.setRefuse(false)
}

func (p *proxy) setRefuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// stall lets nothing pass for a while, and then cuts what hung: in between neither side receives anything.
func (p *proxy) stall(ctx context.Context, length time.Duration) {
	p.mu.Lock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
	p.mu.Unlock()
	pause(ctx, length)
	p.cut()
	p.resume()
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}
