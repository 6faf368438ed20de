//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/mac/pf"
)

const connectionsFile = "connections.json"

// Front stands before the model's SSH server, and lets through what the packet filter does: a new connection by the present
// rules, a packet of a live one by its state, or without one by the rules of that moment. A dropped packet waits, as if its
// sender retried.
type Front struct {
	root     Root
	server   string
	listener net.Listener
	source   atomic.Value // netip.Addr
	accepted atomic.Int64
	dropped  atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  chan struct{}
}

// ListenSSH stands before the server at that address, on a port of loopback (0: any).
func (r Root) ListenSSH(ctx context.Context, port int, server string, source netip.Addr) (*Front, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	f := &Front{root: r, server: server, listener: listener, conns: map[net.Conn]bool{}, done: make(chan struct{})}
	f.source.Store(source)
	go f.serve(ctx)
	return f, nil
}

// Address is where clients connect to.
func (f *Front) Address() string { return f.listener.Addr().String() }

// SetSource says where connections come from that are made from now on.
func (f *Front) SetSource(a netip.Addr) { f.source.Store(a) }

// Accepted is how many connections the filter has let in, Dropped how many it has not.
func (f *Front) Accepted() int { return int(f.accepted.Load()) }

// Dropped is how many connections the filter has not let in.
func (f *Front) Dropped() int { return int(f.dropped.Load()) }

// Cut ends all connections at once, as a network that fails.
func (f *Front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		conn.Close()
	}
}

// Close ends it with all connections.
func (f *Front) Close() {
	f.mu.Lock()
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	f.mu.Unlock()
	_ = f.listener.Close()
	f.Cut()
}

func (f *Front) keep(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[conn] = true
}

func (f *Front) forget(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

func (f *Front) serve(ctx context.Context) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.keep(conn)
		go func() {
			defer f.forget(conn)
			f.handle(ctx, conn)
		}()
	}
}

// guarded is one connection with what the filter knows of it.
type guarded struct {
	front    *Front
	source   netip.Addr
	mu       sync.Mutex
	flushes  int // of the filter's states, when this one's was made
	stateful bool
}

func (f *Front) handle(ctx context.Context, conn net.Conn) {
	source, _ := f.source.Load().(netip.Addr)
	filter, machine, err := f.root.filter()
	if err != nil {
		return
	}
	answer := evaluate(filter, machine, Flow{From: source, To: machine.address("en0", source.Is4()), Port: 22})
	if !answer.Reached {
		f.dropped.Add(1)
		if answer.Refused {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // a reset
			}
			return
		}
		// No server answers. The client times out, or the Mac shuts down.
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	f.accepted.Add(1)
	inner, err := new(net.Dialer).DialContext(ctx, "tcp", f.server)
	if err != nil {
		return
	}
	f.keep(inner)
	defer f.forget(inner)
	if local, err := netip.ParseAddrPort(inner.LocalAddr().String()); err == nil {
		_ = update(f.root, connectionsFile, func(all *map[string]string) error {
			if *all == nil {
				*all = map[string]string{}
			}
			(*all)[strconv.Itoa(int(local.Port()))] = source.String() + " 50000 " + machine.address("en0", source.Is4()).String() + " 22"
			return nil
		})
	}
	g := &guarded{front: f, source: source, flushes: filter.Flushes, stateful: answer.Stateful && filter.Enabled}
	var both sync.WaitGroup
	both.Go(func() { g.copy(inner, conn, true) })
	g.copy(conn, inner, false)
	both.Wait()
}

// copy passes data on, as long as the filter allows it.
func (g *guarded) copy(to, from net.Conn, in bool) {
	defer func() {
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // the other direction may continue
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !g.wait(in) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns once the filter lets the connection's packets through; false if the Mac goes before.
func (g *guarded) wait(in bool) bool {
	for !g.passes(in) {
		select {
		case <-g.front.done:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

// passes asks the filter about a packet. A packet with a state passes under any rules, until states are flushed.
func (g *guarded) passes(in bool) bool {
	filter, machine, err := g.front.root.filter()
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stateful && filter.Flushes == g.flushes {
		return true
	}
	g.stateful = false
	own := machine.address("en0", g.source.Is4())
	packet := pf.Packet{Direction: "in", Interface: machine.interfaceOf(g.source), Proto: "tcp", Src: g.source, Dst: own, SrcPort: 50000, DstPort: 22, Established: true}
	if !in {
		packet.Direction, packet.Src, packet.Dst, packet.SrcPort, packet.DstPort = "out", own, g.source, 22, 50000
	}
	return filter.Evaluate(packet, machine.interfaces()).Pass
}

func (r Root) filter() (*pf.Filter, Machine, error) {
	var f pf.Filter
	var m Machine
	err := errors.Join(r.read(filterFile, &f), r.read(machineFile, &m))
	return &f, m, err
}

// runSSHSession is what sshd runs for every session: the user's shell on the Mac.
func runSSHSession(ctx context.Context, c *call) error {
	if len(c.Args) != 1 {
		return errors.New("the model's ssh-session wants a user")
	}
	user := c.Args[0]
	if _, known := c.config.user(user); !known {
		return failed(1, "there is no user %s on this Mac", user)
	}
	if _, err := os.Stat(c.root.state(addressFile)); err != nil {
		return failed(1, "the Mac is not up")
	}
	if err := update(c.root, loginsFile, func(n *struct{ Sessions int }) error { n.Sessions++; return nil }); err != nil {
		return err
	}
	env := c.root.environment(user, nil)
	for i, pair := range env {
		if strings.HasPrefix(pair, "PATH=") {
			env[i] = "PATH=" + c.root.searchPath(true)
		}
	}
	env = append(env, c.connection()...)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-l")
	if command := os.Getenv("SSH_ORIGINAL_COMMAND"); command != "" {
		cmd = exec.CommandContext(ctx, "/bin/sh", "-c", command)
	}
	cmd.Env, cmd.Dir = env, c.root.Path("/Users/"+user)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	return passSignals(cmd)
}

const loginsFile = "logins.json"

// connection are the variables by which a session knows where it comes from, as it would on the Mac.
func (c *call) connection() []string {
	words := strings.Fields(os.Getenv("SSH_CONNECTION"))
	if len(words) != 4 {
		return nil
	}
	all := map[string]string{}
	if err := c.root.read(connectionsFile, &all); err != nil || all[words[1]] == "" {
		return []string{"SSH_CONNECTION=" + strings.Join(words, " ")}
	}
	shown := strings.Fields(all[words[1]])
	return []string{"SSH_CONNECTION=" + strings.Join(shown, " "), fmt.Sprintf("SSH_CLIENT=%s %s %s", shown[0], shown[1], shown[3])}
}

// Sessions is how many sessions were begun over SSH.
func (r Root) Sessions() (int, error) {
	var n struct{ Sessions int }
	err := r.read(loginsFile, &n)
	return n.Sessions, err
}
