package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Conditions of a Proxy. The zero value is a network without fault.
type Conditions struct {
	// Refuse resets new connections at once; existing ones continue.
	Refuse bool
	// HoldUp keeps back what clients send, HoldDown what the target answers: nothing is lost, nothing arrives, and no end of
	// a connection is passed on either. One of them makes a half-open connection, both a black hole. When a hold ends, what
	// was kept back arrives, as after a loss of packets.
	HoldUp, HoldDown bool
	// Delay holds each piece of data back for so long, in both directions.
	Delay time.Duration
}

// BlackHole lets nothing through, in either direction, without an error.
var BlackHole = Conditions{HoldUp: true, HoldDown: true}

// Proxy passes TCP connections on to a target and breaks them on request. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	network  string
	target   string
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu         sync.Mutex
	conditions Conditions
	changed    chan struct{} // closed and replaced when the conditions change
	links      map[*link]bool
	accepted   int
}

// link is one connection: the client's half and the target's.
type link struct{ client, target net.Conn }

// NewProxy listens on a free loopback port for connections to target: host:port, or the path of a Unix socket. Close ends it.
func NewProxy(target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for a proxy: %w", err)
	}
	p := &Proxy{listener: listener, network: "tcp", target: target, changed: make(chan struct{}), links: map[*link]bool{}}
	if _, _, err := net.SplitHostPort(target); err != nil {
		p.network = "unix"
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to: host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set changes the conditions, of connections that exist too.
func (p *Proxy) Set(c Conditions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions = c
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends all conditions.
func (p *Proxy) Heal() { p.Set(Conditions{}) }

// Cut resets every connection, in the middle of a transfer. It returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	return len(p.links)
}

// Links is how many connections pass now; Accepted, how many there have been.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted is how many connections were passed on or refused since the beginning.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Close resets every connection and waits for the proxy's goroutines. It may be called twice.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.Cut()
	p.tasks.Wait() // bounded: the listener and all connections are closed above
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		refuse := p.conditions.Refuse
		p.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		p.tasks.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.pass(true) { // in a black hole not even the connection arrives
		reset(client)
		return
	}
	target, err := new(net.Dialer).DialContext(p.ctx, p.network, p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, target: target}
	p.mu.Lock()
	p.links[l] = true
	over := p.ctx.Err() != nil
	p.mu.Unlock()
	if over {
		l.reset() // Close has not seen it
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, client, target, true) })
	both.Go(func() { p.pump(l, target, client, false) })
	both.Wait() // bounded: Close resets both
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	_ = client.Close()
	_ = target.Close()
}

// pump moves one direction's data. An end that is in order is passed on as such, any other resets both halves.
func (p *Proxy) pump(l *link, from, to net.Conn, up bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.pass(up) {
			l.reset()
			return
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				l.reset()
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other direction may continue
			}
			return
		case err != nil:
			l.reset()
			return
		}
	}
}

// pass waits as the conditions say; false when the proxy stops before.
func (p *Proxy) pass(up bool) bool {
	delayed := false
	for {
		p.mu.Lock()
		now, changed := p.conditions, p.changed
		p.mu.Unlock()
		held := up && now.HoldUp || !up && now.HoldDown
		var over <-chan time.Time
		switch {
		case held:
		case now.Delay > 0 && !delayed:
			timer := time.NewTimer(now.Delay)
			defer timer.Stop()
			over = timer.C
		default:
			return p.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-over:
			delayed = true
		case <-p.ctx.Done():
			return false
		}
	}
}

func (l *link) reset() {
	reset(l.client)
	reset(l.target)
}

// reset ends a connection so that its peer sees an error and no orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
