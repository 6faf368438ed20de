package serviceproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listerscorev1 "k8s.io/client-go/listers/core/v1"
	listersdiscoveryv1 "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	dialTimeout = 5 * time.Second // of one endpoint, before the next is tried
	listenAgain = time.Second     // after an address could not be listened at
)

// Network is where Services' addresses are, and their endpoints. Addresses are an IP and a port.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options of New.
type Options struct {
	// Config reaches the API server as a user who may list and watch Services and EndpointSlices, such as
	// system:kube-proxy. Required.
	Config *rest.Config
	// Network of the pods. Required.
	Network Network
	// Local are Services, by namespace/name, whose one endpoint is an address of this machine (host:port, or unix: and the path
	// of a socket), outside of the pods' network.
	Local map[string]string
	// Nameserver is the address in the pods' network at which DNS queries are answered. None are when it is zero.
	Nameserver netip.Addr
	// ClusterDomain ends the full names of Services. Default cluster.local.
	ClusterDomain string
	// Log gets what cannot be listened at. Default: discarded.
	Log *slog.Logger
}

// Proxy is the proxy of one machine.
type Proxy struct {
	opts      Options
	services  listerscorev1.ServiceLister
	endpoints listersdiscoveryv1.EndpointSliceLister
	factory   informers.SharedInformerFactory
	synced    []cache.InformerSynced
	kick      chan struct{}
	parts     sync.WaitGroup
	fronts    map[netip.AddrPort]*front // Run's own
}

// New prepares a proxy; nothing happens before Run.
func New(opts Options) (*Proxy, error) {
	if opts.Config == nil || opts.Network == nil {
		return nil, errors.New("making a proxy of Services: a client configuration and a network are required")
	}
	if opts.ClusterDomain == "" {
		opts.ClusterDomain = "cluster.local"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	kube, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	p := &Proxy{opts: opts, factory: informers.NewSharedInformerFactory(kube, 0), kick: make(chan struct{}, 1), fronts: map[netip.AddrPort]*front{}}
	services, endpoints := p.factory.Core().V1().Services(), p.factory.Discovery().V1().EndpointSlices()
	p.services, p.endpoints = services.Lister(), endpoints.Lister()
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), endpoints.Informer()} {
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { p.poke() }, UpdateFunc: func(any, any) { p.poke() }, DeleteFunc: func(any) { p.poke() },
		})
		if err != nil {
			return nil, fmt.Errorf("watching Services: %w", err)
		}
		p.synced = append(p.synced, handle.HasSynced)
	}
	return p, nil
}

func (p *Proxy) poke() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// Run works until ctx is done; connections end with it. It returns early only if DNS queries cannot be answered.
func (p *Proxy) Run(ctx context.Context) error {
	defer p.parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.opts.Nameserver.IsValid() {
		conn, err := p.opts.Network.ListenPacket(ctx, "udp", netip.AddrPortFrom(p.opts.Nameserver, 53).String())
		if err != nil {
			return fmt.Errorf("listening for DNS queries: %w", err)
		}
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		p.parts.Go(func() { p.serveDNS(conn) })
	}
	p.factory.StartWithContext(ctx)
	defer p.factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), p.synced...) {
		return nil
	}
	for {
		var again <-chan time.Time
		if !p.sync(ctx) {
			again = time.After(listenAgain)
		}
		select {
		case <-ctx.Done():
			p.closeFronts()
			return nil
		case <-p.kick:
		case <-again:
		}
	}
}

// sync listens for Services with endpoints, and nowhere else. It reports whether all of that was possible.
func (p *Proxy) sync(ctx context.Context) bool {
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return false
	}
	endpoints, err := p.endpoints.List(labels.Everything())
	if err != nil {
		return false
	}
	routes := routesOf(services, endpoints, p.opts.Local)
	for at, f := range p.fronts {
		if _, wanted := routes[at]; !wanted {
			_ = f.listener.Close() // connections continue
			delete(p.fronts, at)
		}
	}
	all := true
	for _, at := range slices.SortedFunc(maps.Keys(routes), netip.AddrPort.Compare) {
		r := routes[at]
		if f := p.fronts[at]; f != nil {
			f.route.Store(&r)
			continue
		}
		listener, err := p.opts.Network.Listen(ctx, "tcp", at.String())
		if err != nil {
			p.opts.Log.Error("a Service cannot be reached: listening at its address failed and will be tried again", "service", r.Service, "address", at, "error", err)
			all = false
			continue
		}
		f := &front{proxy: p, listener: listener}
		f.route.Store(&r)
		p.fronts[at] = f
		p.parts.Go(func() { f.serve(ctx) })
	}
	return all
}

func (p *Proxy) closeFronts() {
	for _, f := range p.fronts {
		_ = f.listener.Close()
	}
}

// front is one port of a Service.
type front struct {
	proxy    *Proxy
	listener net.Listener
	route    atomic.Pointer[route]
	turn     atomic.Uint64
}

func (f *front) serve(ctx context.Context) {
	for {
		conn, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // of one connection
		}
		f.proxy.parts.Go(func() { f.pass(ctx, conn) })
	}
}

// pass joins a connection with one to an endpoint, the next in rotation that accepts it.
func (f *front) pass(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	r := f.route.Load()
	first := f.turn.Add(1)
	for i := range uint64(len(r.Backends)) {
		backend, err := f.dial(ctx, r, r.Backends[(first+i)%uint64(len(r.Backends))])
		if err != nil {
			continue
		}
		defer func() { _ = backend.Close() }()
		defer context.AfterFunc(ctx, func() {
			_ = client.Close()
			_ = backend.Close()
		})()
		join(client, backend)
		return
	}
}

func (f *front) dial(ctx context.Context, r *route, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if r.Local {
		if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return f.proxy.opts.Network.DialContext(ctx, "tcp", address)
}

// join copies both ways until both have ended. The end of one way is passed on, and the other continues.
func join(a, b net.Conn) {
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

// serveDNS answers until conn is closed.
func (p *Proxy) serveDNS(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one packet
		}
		reply, err := answer(buffer[:n], func(name string) (netip.Addr, bool) {
			services, err := p.services.List(labels.Everything())
			if err != nil {
				services = []*corev1.Service{}
			}
			return resolve(name, p.opts.ClusterDomain, services)
		})
		if err == nil {
			_, _ = conn.WriteTo(reply, from) // the client retries
		}
	}
}
