package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

// Names of links. They are in namespaces of our own, so they meet no others.
const (
	bridgeName = "pods"
	podLink    = "eth0"
)

// Options of Open.
type Options struct {
	// StateDir keeps the namespaces and the pods' addresses. Required, absolute.
	StateDir string
	// Pods and Services are the ranges of their addresses. Default 10.112.0.0/16, and 10.111.0.0/16, which is the development
	// control plane's.
	Pods, Services netip.Prefix
}

// Network is the network of one node. Its methods may be called concurrently; one process at a time may have one open.
type Network struct {
	opts      Options
	addresses addresses
	mu        sync.Mutex // guards addresses, and who makes and removes links
}

// Open makes the node's namespace, or finds the one of an earlier process.
func Open(opts Options) (*Network, error) {
	if !filepath.IsAbs(opts.StateDir) {
		return nil, fmt.Errorf("state folder %q: give an absolute path", opts.StateDir)
	}
	setDefault(&opts.Pods, netip.MustParsePrefix("10.112.0.0/16"))
	setDefault(&opts.Services, netip.MustParsePrefix("10.111.0.0/16"))
	if !opts.Pods.Addr().Is4() || !opts.Services.Addr().Is4() {
		return nil, fmt.Errorf("the addresses of pods (%s) and of Services (%s): only IPv4 is possible", opts.Pods, opts.Services)
	}
	if opts.Pods.Overlaps(opts.Services) {
		return nil, fmt.Errorf("the addresses of pods (%s) and of Services (%s) overlap: choose another range for one of them", opts.Pods, opts.Services)
	}
	n := &Network{opts: opts, addresses: newAddresses(filepath.Join(opts.StateDir, "addresses"), opts.Pods)}
	for _, dir := range []string{n.addresses.dir, n.podsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of the pods' network: %w", err)
		}
	}
	made, err := netns.Ensure(n.nodeFile())
	if err != nil {
		return nil, fmt.Errorf("making the node's network namespace (it takes root): %w", err)
	}
	if made {
		if err := n.setUp(); err != nil {
			return nil, errors.Join(fmt.Errorf("setting up the node's network: %w", err), netns.Remove(n.nodeFile()))
		}
	}
	return n, nil
}

func setDefault(field *netip.Prefix, value netip.Prefix) {
	if !field.IsValid() {
		*field = value
	}
}

func (n *Network) nodeFile() string { return filepath.Join(n.opts.StateDir, "node") }
func (n *Network) podsDir() string  { return filepath.Join(n.opts.StateDir, "pods") }

// NamespaceFile is what a process enters to be in the pod's network.
func (n *Network) NamespaceFile(podUID string) string {
	return filepath.Join(n.podsDir(), filepath.Base(podUID))
}

// setUp makes the bridge that pods are connected to, and the range of addresses that listeners may choose from.
func (n *Network) setUp() error {
	return netns.WithHandle(n.nodeFile(), func(node *netlink.Handle) error {
		loopback, err := node.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := node.LinkSetUp(loopback); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
		if err := node.LinkAdd(bridge); err != nil {
			return fmt.Errorf("making a bridge: %w", err)
		}
		address := netip.PrefixFrom(n.addresses.bridge(), n.opts.Pods.Bits())
		if err := node.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
			return fmt.Errorf("giving the bridge the address %s: %w", address, err)
		}
		if err := node.LinkSetUp(bridge); err != nil {
			return err
		}
		// Every address of the range is this node's, without having to be put on a link one by one.
		return node.RouteAdd(&netlink.Route{
			LinkIndex: loopback.Attrs().Index, Dst: ipNet(n.opts.Services.Masked()),
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	})
}

// Attach makes the pod's namespace and gives it an address; where both are there already it changes nothing.
func (n *Network) Attach(_ context.Context, podUID string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address, err := n.addresses.take(podUID)
	if err != nil {
		return address, fmt.Errorf("choosing an address for pod %s: %w", podUID, err)
	}
	file := n.NamespaceFile(podUID)
	made, err := netns.Ensure(file)
	if err != nil {
		return address, fmt.Errorf("making the network namespace of pod %s: %w", podUID, err)
	}
	if made {
		if err := n.connect(file, address); err != nil {
			// Without the namespace the next try starts over.
			return address, errors.Join(fmt.Errorf("connecting pod %s: %w", podUID, err), netns.Remove(file))
		}
	}
	return address, nil
}

// connect joins a pod's namespace to the bridge.
func (n *Network) connect(podFile string, address netip.Addr) error {
	pod, err := os.Open(podFile)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	err = netns.WithHandle(n.nodeFile(), func(node *netlink.Handle) error {
		bridge, err := node.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		octets := address.As4()
		return node.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("pod-%02x%02x%02x%02x", octets[0], octets[1], octets[2], octets[3]), MasterIndex: bridge.Attrs().Index, Flags: net.FlagUp},
			PeerName:  podLink, PeerNamespace: netlink.NsFd(pod.Fd()),
		})
	})
	if err != nil {
		return fmt.Errorf("making a pair of links: %w", err)
	}
	return netns.WithHandle(podFile, func(inside *netlink.Handle) error {
		for _, name := range []string{"lo", podLink} {
			link, err := inside.LinkByName(name)
			if err != nil {
				return err
			}
			if name == podLink {
				if err := inside.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, n.opts.Pods.Bits()))}); err != nil {
					return fmt.Errorf("giving it the address %s: %w", address, err)
				}
			}
			if err := inside.LinkSetUp(link); err != nil {
				return err
			}
		}
		return inside.RouteAdd(&netlink.Route{Gw: n.addresses.bridge().AsSlice()})
	})
}

// Address is the address of a pod that is attached, or false.
func (n *Network) Address(podUID string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses.of(podUID)
}

// Detach removes the pod's namespace and frees its address. No process of the pod may run. A pod that is not attached is detached already.
func (n *Network) Detach(_ context.Context, podUID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := netns.Remove(n.NamespaceFile(podUID)); err != nil {
		return fmt.Errorf("removing the network namespace of pod %s: %w", podUID, err)
	}
	return n.addresses.giveBack(podUID)
}

// Destroy removes every namespace. No process may run in them, or have the network open.
func (n *Network) Destroy() error {
	entries, err := os.ReadDir(n.podsDir())
	if err != nil {
		return fmt.Errorf("listing the pods' networks: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, netns.Remove(n.NamespaceFile(e.Name())))
	}
	errs = append(errs, netns.Remove(n.nodeFile()))
	return errors.Join(append(errs, os.RemoveAll(n.opts.StateDir))...)
}

// Listen listens in the node's namespace, where pods reach it. address is an IP and a port: the bridge's, or one of the
// Services' range.
func (n *Network) Listen(ctx context.Context, network, address string) (listener net.Listener, err error) {
	err = netns.Within(n.nodeFile(), func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return listener, err
}

// ListenPacket is Listen for datagrams.
func (n *Network) ListenPacket(ctx context.Context, network, address string) (conn net.PacketConn, err error) {
	err = netns.Within(n.nodeFile(), func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(ctx, network, address)
		return err
	})
	return conn, err
}

// DialContext connects from the node's namespace, from where every pod and Service is reached. address is an IP and a
// port: no name is resolved.
func (n *Network) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("connecting to %s: only an IP and a port can be: %w", address, err)
	}
	err = netns.Within(n.nodeFile(), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
