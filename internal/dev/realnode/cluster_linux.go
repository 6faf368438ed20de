package realnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
)

// Options configure Start. Only StateDir is required.
type Options struct {
	// StateDir keeps the control plane's data and the nodes' directories. It has to be on a file system that overlayfs can be on: not on
	// another overlay.
	StateDir string
	// ControlPlane is how it is started. Its StateDir is within ours.
	ControlPlane controlplane.Options
	// NodeAssets is the directory of the nodes' programs. Empty: found by assets.FindNode.
	NodeAssets string
	// ImagesDir keeps what the nodes' containerd has: images remain for the next start, which finds the containers of this one stopped, as after
	// a restart of a machine. Empty: nothing is kept.
	ImagesDir string
	// Outside lets nodes and pods reach what this machine reaches: names by its resolvers, and addresses by TCP. Else there is nothing outside.
	Outside bool
	// Resolvers are the addresses of the name servers for Outside. Nil: the machine's own.
	Resolvers []string
	// Log gets starts, stops and failures. Nil: discarded.
	Log *slog.Logger
}

// Cluster is a control plane and its nodes. Its methods may be called concurrently.
type Cluster struct {
	opts    Options
	log     *slog.Logger
	plane   *controlplane.ControlPlane
	network *network
	kube    kubernetes.Interface
	sockets string // a directory with a short name: a socket's path is limited to some hundred bytes
	began   time.Time

	mu    sync.Mutex
	nodes map[int]*Node
}

// Start brings up the network and the control plane, with DNS and the rights of the nodes' programs. It has no node yet. What an earlier run left in
// the state directory is removed first. ctx bounds the start only; Stop ends the cluster. The error is ErrUnsupported when this machine cannot run a node.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if err := CheckMachine(); err != nil {
		return nil, err
	}
	var err error
	if opts.StateDir, err = filepath.Abs(opts.StateDir); err != nil {
		return nil, fmt.Errorf("resolving the state directory: %w", err)
	}
	if opts.NodeAssets == "" {
		if opts.NodeAssets, err = assets.FindNode(assets.Options{}); err != nil {
			return nil, err
		}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cluster{opts: opts, log: opts.Log, nodes: map[int]*Node{}, sockets: socketsOf(opts.StateDir), began: time.Now()}
	if err := c.bringUp(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context) error {
	if err := RemoveRemains(ctx, c.opts.StateDir); err != nil {
		return err
	}
	for _, dir := range []string{c.opts.StateDir, c.sockets} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	if err := CheckStateDir(c.opts.StateDir); err != nil {
		return err
	}
	var err error
	if c.network, err = openNetwork(networkFile(c.opts.StateDir), c.log); err != nil {
		return err
	}
	socket, config := filepath.Join(c.sockets, "egress"), filepath.Join(c.opts.StateDir, "egress.yaml")
	if err := os.WriteFile(config, []byte(egressConfig(socket)), 0o600); err != nil {
		return fmt.Errorf("writing the egress configuration: %w", err)
	}
	if err := c.network.serveEgress(ctx, socket, c.anyNode); err != nil {
		return err
	}
	if c.opts.Outside {
		resolvers := c.opts.Resolvers
		if resolvers == nil {
			resolvers = hostResolvers()
		}
		if err := c.network.serveOutside(ctx, resolvers); err != nil {
			return err
		}
	}
	if err := c.startPlane(ctx, config); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.plane.URL(), "https://"))
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	if err := c.network.forward(ctx, netip.AddrPortFrom(gateway, apiPort), net.JoinHostPort("127.0.0.1", port)); err != nil {
		return err
	}
	return c.installAddons(ctx)
}

func (c *Cluster) startPlane(ctx context.Context, egress string) error {
	o := c.opts.ControlPlane
	o.StateDir, o.Log = filepath.Join(c.opts.StateDir, "control-plane"), c.log
	extra := map[controlplane.Component][]string{}
	for component, args := range o.ExtraArgs {
		extra[component] = args
	}
	extra[controlplane.APIServer] = append([]string{"--egress-selector-config-file=" + egress}, extra[controlplane.APIServer]...)
	o.ExtraArgs = extra
	var err error
	if c.plane, err = controlplane.Start(ctx, o); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(c.plane.AdminConfig()); err != nil {
		return fmt.Errorf("making a client of the API server: %w", err)
	}
	return nil
}

// Plane is the cluster's control plane.
func (c *Cluster) Plane() *controlplane.ControlPlane { return c.plane }

// anyNode is the network of a running node.
func (c *Cluster) anyNode() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for index := 1; index <= maxNodes; index++ {
		if n := c.nodes[index]; n != nil && n.init != nil && !n.init.Exited() {
			return n.namespace("net"), nil
		}
	}
	return "", errors.New("no node runs")
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$`)

// NodeOptions configure a node. The zero value is a node of the defaults.
type NodeOptions struct {
	// ShutdownGracePeriod is the kubelet's setting of that name, and has the node run D-Bus and systemd-logind, which the kubelet learns of a
	// shutdown from. Zero: the kubelet knows of no shutdown.
	ShutdownGracePeriod time.Duration
}

// AddNode starts a node of the defaults, as AddNodeWith does.
func (c *Cluster) AddNode(ctx context.Context, name string) (*Node, error) {
	return c.AddNodeWith(ctx, name, NodeOptions{})
}

// AddNodeWith starts a node and returns when its programs are healthy, its Node is Ready, and the cluster's DNS answers.
func (c *Cluster) AddNodeWith(ctx context.Context, name string, o NodeOptions) (*Node, error) {
	if !nodeName.MatchString(name) {
		return nil, fmt.Errorf("node %q: a name is lower-case letters, digits and hyphens", name)
	}
	if o.ShutdownGracePeriod > 0 {
		if err := checkPower(); err != nil {
			return nil, err
		}
	}
	n, err := c.reserve(name, o)
	if err != nil {
		return nil, err
	}
	if err = n.launch(ctx); err == nil {
		err = c.waitReady(ctx, name, c.began)
	}
	if err == nil {
		err = c.waitDNS(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting node %s: %w", name, err), n.Stop(context.WithoutCancel(ctx)))
	}
	return n, nil
}

func (c *Cluster) reserve(name string, o NodeOptions) (*Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.nodes {
		if other.layout.name == name {
			return nil, fmt.Errorf("node %s runs already", name)
		}
	}
	for index := 1; index <= maxNodes; index++ {
		if c.nodes[index] != nil {
			continue
		}
		n := &Node{
			layout: layout{
				index: index, name: name, cgroup: c.cgroup() + "/" + name, cniPlugins: theMachine().plugins(), outside: c.opts.Outside,
				shutdownGrace: o.ShutdownGracePeriod,
			},
			cluster: c, dir: c.nodeDir(name), parts: c.opts.NodeAssets, runs: map[string]*run{},
		}
		if c.opts.ImagesDir != "" {
			n.images = filepath.Join(c.opts.ImagesDir, name)
		}
		c.nodes[index] = n
		return n, nil
	}
	return nil, fmt.Errorf("starting node %s: %d nodes run, which is the most", name, maxNodes)
}

func (c *Cluster) forget(n *Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[n.layout.index] == n {
		delete(c.nodes, n.layout.index)
	}
}

// cgroup is the parent of the nodes' cgroups: of this state directory alone.
func (c *Cluster) cgroup() string { return "/" + filepath.Base(c.sockets) }

func (c *Cluster) nodeDir(name string) string { return filepath.Join(nodesDir(c.opts.StateDir), name) }

// Address makes nodes and pods reach this cluster's listeners at an address, such as one that stands for a host on the internet.
func (c *Cluster) Address(a netip.Addr) error { return c.network.address(a) }

// Listen listens where nodes and pods reach it: at the gateway's address, or one that Address was called with. The caller closes it.
func (c *Cluster) Listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	return c.network.listen(ctx, address)
}

// ListenPacket receives UDP datagrams where Listen accepts connections. The caller closes it.
func (c *Cluster) ListenPacket(ctx context.Context, address netip.AddrPort) (net.PacketConn, error) {
	return c.network.listenPacket(ctx, address)
}

// Forward passes connections of nodes and pods to an address on to one of the machine, until Stop: a host and a port, or unix: and a socket's
// path.
func (c *Cluster) Forward(ctx context.Context, from netip.AddrPort, to string) error {
	return c.network.forward(ctx, from, to)
}

// Gateway is the address of this machine for nodes and pods.
func Gateway() netip.Addr { return gateway }

// Dial connects from a node, where pods and Services are reached by their addresses.
func (c *Cluster) Dial(ctx context.Context, address string) (net.Conn, error) {
	return dialFrom(ctx, c.anyNode, address)
}

func (c *Cluster) running() []*Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Node
	for index := 1; index <= maxNodes; index++ {
		if n := c.nodes[index]; n != nil {
			all = append(all, n)
		}
	}
	return all
}

// Stop ends the nodes, the control plane and the network. When it returns no process is left, and of files only the control plane's.
func (c *Cluster) Stop(ctx context.Context) error {
	var errs []error
	for _, n := range c.running() {
		errs = append(errs, n.Stop(ctx))
	}
	if c.plane != nil {
		errs = append(errs, c.plane.Stop(ctx))
	}
	if c.network != nil {
		errs = append(errs, c.network.close())
	}
	return errors.Join(append(errs, removeCgroup(ctx, c.cgroup()), os.RemoveAll(c.sockets), os.RemoveAll(nodesDir(c.opts.StateDir)))...)
}

func apiURL() string { return "https://" + net.JoinHostPort(gateway.String(), strconv.Itoa(apiPort)) }

// ContentDir is where a node has the contents of its images, by SHA-256, in the directory Options.ImagesDir.
func ContentDir(images, node string) string {
	return filepath.Join(images, node, "io.containerd.content.v1.content", "blobs", "sha256")
}
