package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

const (
	// maxRelays bounds the ports of a container, maxFlows the connections or UDP clients of a port at a time. More TCP connections wait in the
	// kernel; datagrams of more clients are dropped, as UDP allows.
	maxRelays, maxFlows = 128, 512
	// flowIdle is after how much silence a UDP client is forgotten, as in Docker's proxy.
	flowIdle = 90 * time.Second
	// dialPatience bounds a connection within the pod.
	dialPatience = 10 * time.Second
	// maxDatagram is UDP's, in bytes.
	maxDatagram = 64 << 10
)

// relays are the ports that this guard forwards. They end with it.
type relays struct {
	mu     sync.Mutex
	opened map[wire.Relay]bool
}

// open opens a port, unless it is open already for the same target.
func (r *relays) open(relay wire.Relay) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened[relay] {
		return nil
	}
	if len(r.opened) >= maxRelays {
		return wire.Failf(wire.FailInvalid, "more than %d forwarded ports", maxRelays)
	}
	var err error
	if relay.Protocol == "tcp" {
		err = relayTCP(relay)
	} else {
		err = relayUDP(relay)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return wire.Failf(wire.FailInUse, "port %d/%s: address already in use", relay.Listen, relay.Protocol)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return wire.Failf(wire.FailNotPermitted, "port %d/%s: ports below 1024 need root in this container", relay.Listen, relay.Protocol)
	case err != nil:
		return fmt.Errorf("opening port %d/%s: %w", relay.Listen, relay.Protocol, err)
	}
	if r.opened == nil {
		r.opened = map[wire.Relay]bool{}
	}
	r.opened[relay] = true
	return nil
}

// targets are where a service of the pod may listen for its own port.
func targets(port uint16) []string {
	text := strconv.Itoa(int(port))
	return []string{net.JoinHostPort("127.0.0.1", text), net.JoinHostPort("::1", text)}
}

func relayTCP(relay wire.Relay) error {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: int(relay.Listen)})
	if err != nil {
		return err
	}
	go func() { // ends with this process
		slots := make(chan struct{}, maxFlows)
		for {
			slots <- struct{}{}
			conn, err := listener.AcceptTCP()
			if err != nil {
				<-slots
				<-time.After(acceptBackoff)
				continue
			}
			go func() {
				defer func() { <-slots }()
				forward(conn, relay.Target)
			}()
		}
	}()
	return nil
}

// acceptBackoff is the wait after a connection that could not be accepted, such as for want of file descriptors.
const acceptBackoff = 100 * time.Millisecond

// dial connects to a port of the pod. What waits for it ends with this process.
func dial(protocol, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialPatience}).DialContext(context.Background(), protocol, address)
}

// forward copies both ways until both sides have ended. The end of one direction is passed on.
func forward(conn *net.TCPConn, port uint16) {
	defer func() { _ = conn.Close() }()
	var target *net.TCPConn
	for _, address := range targets(port) {
		raw, err := dial("tcp", address)
		if err == nil {
			target, _ = raw.(*net.TCPConn)
			break
		}
	}
	if target == nil { // as a port without a listener
		_ = conn.SetLinger(0)
		return
	}
	defer func() { _ = target.Close() }()
	var copies sync.WaitGroup
	oneWay := func(to, from *net.TCPConn) {
		_, err := io.Copy(to, from)
		_ = to.CloseWrite()
		if err != nil { // broken: the other direction has nothing to wait for
			_ = to.Close()
			_ = from.Close()
		}
	}
	copies.Go(func() { oneWay(target, conn) })
	copies.Go(func() { oneWay(conn, target) })
	copies.Wait()
}

func relayUDP(relay wire.Relay) error {
	listener, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(relay.Listen)})
	if err != nil {
		return err
	}
	u := &datagrams{listener: listener, target: targets(relay.Target)[0], flows: map[string]*net.UDPConn{}}
	go u.run() // ends with this process
	return nil
}

// datagrams forwards a UDP port: each client has a socket of its own, by which the answers are known.
type datagrams struct {
	listener *net.UDPConn
	target   string
	mu       sync.Mutex
	flows    map[string]*net.UDPConn
}

func (u *datagrams) run() {
	buffer := make([]byte, maxDatagram)
	for {
		n, client, err := u.listener.ReadFromUDP(buffer)
		if err != nil {
			<-time.After(acceptBackoff)
			continue
		}
		if flow := u.flow(client); flow != nil {
			_, _ = flow.Write(buffer[:n]) // a target that is not there yet refuses it
			_ = flow.SetReadDeadline(time.Now().Add(flowIdle))
		}
	}
}

// flow returns the client's socket; nil if there are too many.
func (u *datagrams) flow(client *net.UDPAddr) *net.UDPConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := client.String()
	if flow, found := u.flows[key]; found {
		return flow
	}
	if len(u.flows) >= maxFlows {
		return nil
	}
	raw, err := dial("udp", u.target)
	flow, ok := raw.(*net.UDPConn)
	if err != nil || !ok {
		return nil
	}
	_ = flow.SetReadDeadline(time.Now().Add(flowIdle))
	u.flows[key] = flow
	go u.answers(flow, client, key) // ends after flowIdle
	return flow
}

// answers passes the target's answers on until there has been silence for flowIdle.
func (u *datagrams) answers(flow *net.UDPConn, client *net.UDPAddr, key string) {
	buffer := make([]byte, maxDatagram)
	for {
		n, err := flow.Read(buffer)
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue // of a datagram that was sent before; the deadline still holds
		}
		if err != nil {
			break
		}
		_, _ = u.listener.WriteToUDP(buffer[:n], client)
		_ = flow.SetReadDeadline(time.Now().Add(flowIdle))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.flows, key)
	_ = flow.Close()
}
