package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
)

// Options of New. All but Log and Observe are required.
type Options struct {
	// Kube lists and watches NetworkPolicies and pods of Namespace, and namespaces.
	Kube kubernetes.Interface
	// Namespace is that of the pods.
	Namespace string
	// Upstream is where the server listens, as host:port.
	Upstream string
	// Server is what the server is to policies: a pod with an address, which the API server need not know, and Port the port of
	// it that policies name.
	Server *corev1.Pod
	Port   uint16
	// Observe gets each connection that was refused or cut. It must not wait. Optional.
	Observe func(Refusal)
	// Log of what is odd; discarded when nil.
	Log *slog.Logger
}

// Refusal is one connection that was not allowed.
type Refusal struct {
	// Pod is whose it was; empty if it did not say.
	Pod types.NamespacedName
	// Cut indicates that it was established, and allowed until then.
	Cut bool
}

// Gate passes on connections as policies allow. Its methods may be called concurrently.
type Gate struct {
	opt      Options
	server   netip.AddrPort
	policies cache.SharedIndexInformer
	pods     cache.SharedIndexInformer
	spaces   cache.SharedIndexInformer
	started  chan struct{} // closed when the first lists are there
	changed  chan struct{} // holds one when the objects have changed

	mu    sync.Mutex
	rules *netpolicy.Evaluator // nil: nothing is allowed
	uids  map[types.NamespacedName]types.UID
	open  map[*passage]bool
}

// passage is an established connection of a pod.
type passage struct {
	pod            identity
	inside, beyond net.Conn
}

// New makes a gate; Run opens it.
func New(options Options) (*Gate, error) {
	if options.Kube == nil || options.Namespace == "" || options.Upstream == "" || options.Server == nil || options.Port == 0 {
		return nil, errors.New("a policy gate needs a client, a namespace, an upstream, and what the server is to policies")
	}
	addr, err := netip.ParseAddr(options.Server.Status.PodIP)
	if err != nil {
		return nil, fmt.Errorf("reading the address that the server has for policies: %w", err)
	}
	if options.Observe == nil {
		options.Observe = func(Refusal) {}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	own := informers.NewSharedInformerFactoryWithOptions(options.Kube, 0, informers.WithNamespace(options.Namespace))
	g := &Gate{
		opt: options, server: netip.AddrPortFrom(addr, options.Port), started: make(chan struct{}), changed: make(chan struct{}, 1),
		policies: own.Networking().V1().NetworkPolicies().Informer(), pods: own.Core().V1().Pods().Informer(),
		spaces: informers.NewSharedInformerFactory(options.Kube, 0).Core().V1().Namespaces().Informer(),
		open:   map[*passage]bool{},
	}
	return g, nil
}

// Started is closed when the gate knows the cluster. Until then it refuses everything.
func (g *Gate) Started() <-chan struct{} { return g.started }

// Run serves the listener until ctx ends, and closes it. When it returns no connection is left.
func (g *Gate) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { g.wake() }, UpdateFunc: func(any, any) { g.wake() }, DeleteFunc: func(any) { g.wake() },
	}
	var synced []cache.InformerSynced
	for _, informer := range []cache.SharedIndexInformer{g.policies, g.pods, g.spaces} {
		handle, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("watching what policies are about: %w", err)
		}
		synced = append(synced, handle.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			g.judge()
			close(g.started)
			g.follow(ctx)
		}
	})
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		g.closeAll()
	})
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				abort(conn)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("taking connections of pods: %w", err)
		}
		running.Go(func() { g.take(ctx, conn) })
	}
}

func (g *Gate) wake() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

func (g *Gate) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.changed:
			g.judge()
		}
	}
}

// judge reads the rules again, and cuts what they no longer allow.
func (g *Gate) judge() {
	policies := listOf[networkingv1.NetworkPolicy](g.policies)
	pods := listOf[corev1.Pod](g.pods)
	uids := map[types.NamespacedName]types.UID{}
	for i := range pods {
		uids[types.NamespacedName{Namespace: pods[i].Namespace, Name: pods[i].Name}] = pods[i].UID
	}
	rules, err := netpolicy.New(policies, append(pods, *g.opt.Server), listOf[corev1.Namespace](g.spaces))
	if err != nil {
		g.opt.Log.Error("reading the network policies: nothing is let through", "error", err)
	}
	g.mu.Lock()
	g.rules, g.uids = rules, uids
	var cut []*passage
	for p := range g.open {
		if !g.allows(p.pod) {
			delete(g.open, p)
			cut = append(cut, p)
		}
	}
	g.mu.Unlock()
	for _, p := range cut {
		p.abort()
		g.opt.Observe(Refusal{Pod: p.pod.name, Cut: true})
	}
}

func listOf[T any](informer cache.SharedIndexInformer) []T {
	var list []T
	for _, object := range informer.GetStore().List() {
		if typed, ok := object.(*T); ok {
			list = append(list, *typed)
		}
	}
	return list
}

// Allows reports whether the pod of that name may reach the server now, as far as the watch shows.
func (g *Gate) Allows(pod types.NamespacedName) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rules != nil && g.rules.Allows(pod, g.server, corev1.ProtocolTCP)
}

// allows is for holders of the lock.
func (g *Gate) allows(who identity) bool {
	return g.rules != nil && g.uids[who.name] == who.uid && g.rules.Allows(who.name, g.server, corev1.ProtocolTCP)
}

// How long a pod may take to say who it is, and the server to answer a dial.
const (
	sayPatience  = 10 * time.Second
	dialPatience = 5 * time.Second
)

// take brings one connection to the server, if policies allow, and waits for its end.
func (g *Gate) take(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	_ = conn.SetReadDeadline(time.Now().Add(sayPatience))
	said, who, err := introduce(conn)
	if err != nil {
		stop()
		abort(conn)
		if len(said) > 0 {
			g.opt.Observe(Refusal{})
		}
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	dialer := net.Dialer{Timeout: dialPatience}
	p := &passage{pod: who, inside: conn}
	g.mu.Lock()
	allowed := g.allows(who)
	g.mu.Unlock()
	if allowed {
		p.beyond, err = dialer.DialContext(ctx, "tcp", g.opt.Upstream)
	}
	stop()
	if !allowed || err != nil || !g.enter(ctx, p) {
		p.abort()
		if err == nil && ctx.Err() == nil {
			g.opt.Observe(Refusal{Pod: who.name})
		}
		return
	}
	p.pass(said)
	g.mu.Lock()
	delete(g.open, p)
	g.mu.Unlock()
}

// enter puts a connection among those that are cut when policies say so; false if they do already.
func (g *Gate) enter(ctx context.Context, p *passage) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() != nil || !g.allows(p.pod) {
		return false
	}
	g.open[p] = true
	return true
}

func (g *Gate) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p := range g.open {
		p.abort()
		delete(g.open, p)
	}
}
