package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

const (
	bridgeLink  = "nodes"
	nodeLink    = "eth0"
	dialTimeout = 10 * time.Second
)

// network is the switch namespace: a bridge that nodes are connected to, and routes between the pods of different nodes.
type network struct {
	file string // keeps the namespace
	log  *slog.Logger

	parts     sync.WaitGroup
	mu        sync.Mutex
	listeners []net.Listener
	closed    bool
	stop      context.CancelFunc
	ctx       context.Context //nolint:containedctx // of the forwarders, which Close ends
}

// openNetwork makes a fresh namespace. One that an earlier process left ends with the last process in it.
func openNetwork(file string, log *slog.Logger) (*network, error) {
	if err := netns.Remove(file); err != nil {
		return nil, fmt.Errorf("removing the network of an earlier run: %w", err)
	}
	if _, err := netns.Ensure(file); err != nil {
		return nil, fmt.Errorf("making the network of nodes: %w", err)
	}
	n := &network{file: file, log: log}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("setting up the network of nodes: %w", err), n.close())
	}
	return n, nil
}

func (n *network) setUp() error {
	err := netns.WithHandle(n.file, func(handle *netlink.Handle) error {
		loopback, err := handle.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := handle.LinkSetUp(loopback); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeLink}}
		if err := handle.LinkAdd(bridge); err != nil {
			return fmt.Errorf("making a bridge: %w", err)
		}
		if err := handle.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway, nodeRange.Bits()))}); err != nil {
			return fmt.Errorf("giving the bridge an address: %w", err)
		}
		return handle.LinkSetUp(bridge)
	})
	if err != nil {
		return err
	}
	// The kernel shows each thread the settings of its own network.
	return netns.Within(n.file, func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) })
}

// address makes the switch answer at an address, such as one that stands for a host on the internet.
func (n *network) address(a netip.Addr) error {
	return netns.WithHandle(n.file, func(handle *netlink.Handle) error {
		loopback, err := handle.LinkByName("lo")
		if err != nil {
			return err
		}
		return handle.AddrReplace(loopback, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen()))})
	})
}

// attach connects the namespace of a node's first process to the bridge.
func (n *network) attach(l layout, pid int) error {
	inside, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	defer inside.Close()
	err = netns.WithHandle(n.file, func(handle *netlink.Handle) error {
		bridge, err := handle.LinkByName(bridgeLink)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("node%d", l.index)
		if stale, err := handle.LinkByName(name); err == nil { // of a node that has just ended: the kernel has not removed it yet
			if err := handle.LinkDel(stale); err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("removing the link of a node that has ended: %w", err)
			}
		}
		if err := handle.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index, Flags: net.FlagUp},
			PeerName:  nodeLink, PeerNamespace: netlink.NsFd(inside.Fd()),
		}); err != nil {
			return fmt.Errorf("making a pair of links: %w", err)
		}
		return handle.RouteReplace(&netlink.Route{Dst: ipNet(l.pods()), Gw: l.address().AsSlice()})
	})
	if err != nil {
		return fmt.Errorf("connecting node %s: %w", l.name, err)
	}
	return netns.WithHandle(inside.Name(), func(handle *netlink.Handle) error {
		for _, name := range []string{"lo", nodeLink} {
			link, err := handle.LinkByName(name)
			if err != nil {
				return err
			}
			if name == nodeLink {
				if err := handle.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(l.address(), nodeRange.Bits()))}); err != nil {
					return fmt.Errorf("giving it the address %s: %w", l.address(), err)
				}
			}
			if err := handle.LinkSetUp(link); err != nil {
				return err
			}
		}
		return handle.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()})
	})
}

// listen listens in the switch namespace, where nodes and pods reach it.
func (n *network) listen(ctx context.Context, address netip.AddrPort) (listener net.Listener, err error) {
	err = netns.Within(n.file, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening at %s for pods: %w", address, err)
	}
	return listener, nil
}

// listenPacket receives datagrams in the switch namespace.
func (n *network) listenPacket(ctx context.Context, address netip.AddrPort) (conn net.PacketConn, err error) {
	err = netns.Within(n.file, func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(ctx, "udp", address.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("receiving datagrams of pods at %s: %w", address, err)
	}
	return conn, nil
}

// forward passes connections of nodes and pods on to an address of the machine, until close: a host and a port, or unix: and a socket's path.
func (n *network) forward(ctx context.Context, from netip.AddrPort, to string) error {
	listener, err := n.listen(ctx, from)
	if err != nil {
		return err
	}
	return n.serve(listener, func(ctx context.Context, client net.Conn) {
		kind, at := "tcp", to
		if socket, isSocket := strings.CutPrefix(to, "unix:"); isSocket {
			kind, at = "unix", socket
		}
		backend, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, kind, at)
		if err != nil {
			n.log.Warn("a connection of a pod was not forwarded", "to", to, "error", err)
			return
		}
		defer backend.Close()
		join(ctx, client, backend)
	})
}

// serve accepts until close, which also ends every connection.
func (n *network) serve(listener net.Listener, handle func(context.Context, net.Conn)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errors.Join(net.ErrClosed, listener.Close())
	}
	n.listeners = append(n.listeners, listener)
	n.parts.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // of one connection
			}
			n.parts.Go(func() {
				defer conn.Close()
				handle(n.ctx, conn)
			})
		}
	})
	return nil
}

func (n *network) close() error {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.listeners {
		_ = l.Close()
	}
	n.mu.Unlock()
	n.stop()
	n.parts.Wait()
	return netns.Remove(n.file)
}

// join copies both ways until both have ended, or ctx. The end of one way is passed on, and the other continues.
func join(ctx context.Context, a, b net.Conn) {
	defer context.AfterFunc(ctx, func() {
		_ = a.Close()
		_ = b.Close()
	})()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		ways.Go(func() {
			from, to := way[0], way[1]
			_, err := io.Copy(to, from)
			half, can := to.(interface{ CloseWrite() error })
			if err != nil || !can || half.CloseWrite() != nil {
				_ = a.Close()
				_ = b.Close()
			}
		})
	}
	ways.Wait()
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func networkFile(state string) string { return filepath.Join(state, "network") }
