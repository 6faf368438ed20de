package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Agent is the node agent of one machine.
type Agent struct {
	opts    Options
	kube    kubernetes.Interface
	cluster cluster
	events  record.EventRecorder

	// nodeUID is the UID of the Node object, "" until it is registered; nodeKick requests a check of the object.
	nodeUID  atomic.Pointer[types.UID]
	nodeKick chan struct{}

	bound atomic.Pointer[cache.Indexer] // the pods that the watch shows; nil before it began

	mu      sync.Mutex
	workers map[string]*worker // by pod UID
	wg      sync.WaitGroup

	// The report's fields beside the workers' own: set by the lease's and the registrar's goroutines.
	leaseRenewed atomic.Pointer[time.Time]
	nodeProblem  atomic.Pointer[string]
	nodeStatus   atomic.Pointer[corev1.NodeStatus]
	metrics      *metrics
}

// New checks the options. Nothing happens before Run.
func New(opts Options) (*Agent, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1 // the API server's priority and fairness knows better
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	a := &Agent{
		opts: opts, kube: kube, cluster: newCluster(kube, opts.RequestTimeout), workers: map[string]*worker{}, nodeKick: make(chan struct{}, 1), metrics: newMetrics(),
	}
	if source, ok := opts.Sandbox.(sandbox.NewsSource); ok {
		source.TellNews(a.tellNews)
	}
	return a, nil
}

func (a *Agent) volumesDir() string { return filepath.Join(a.opts.StateDir, "volumes") }

// machine is what a pod with an address of its own, or "", finds here.
func (a *Agent) machine(podIP string) machine {
	if podIP == "" {
		podIP = a.opts.IP
	}
	return machine{HostIP: a.opts.IP, PodIP: podIP, Allocatable: a.opts.Capacity, APIService: a.opts.APIService}
}

// Run runs the agent until ctx is done. It returns early only with an error that a retry cannot fix; it waits for an API server that is
// unreachable. The pods' containers continue without it (NODE-3).
func (a *Agent) Run(ctx context.Context) error {
	if err := a.opts.CheckName(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(a.volumesDir(), 0o700); err != nil {
		return fmt.Errorf("making the directory for volumes: %w", err)
	}
	lease, err := newLease(a)
	if err != nil {
		return err
	}
	registrar, err := newRegistrar(a)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	a.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "bullpen-node", Host: a.opts.Name})
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.kube.CoreV1().Events("")})

	ctx, cancel := context.WithCancel(ctx)
	defer a.wg.Wait()
	defer cancel()
	a.wg.Go(func() { lease.run(ctx) })
	a.wg.Go(func() { registrar.run(ctx) })
	a.wg.Go(func() { a.serveReport(ctx) })
	if images, ok := a.opts.Sandbox.(sandbox.ImageCollector); ok {
		a.wg.Go(func() { a.collectImages(ctx, images) })
	}
	a.nodeEvent(corev1.EventTypeNormal, "Starting", fmt.Sprintf("the Bullpen node agent %s runs pods with back end %s", a.opts.Version, a.opts.SandboxName))
	return a.watch(ctx)
}

// watch follows the Node object and the pods bound to it.
func (a *Agent) watch(ctx context.Context) error {
	pods := a.informers("spec.nodeName")
	nodes := a.informers("metadata.name")
	podInformer, nodeInformer := pods.Core().V1().Pods().Informer(), nodes.Core().V1().Nodes().Informer()
	if err := podInformer.SetTransform(dropManagedFields); err != nil {
		return fmt.Errorf("setting up the watch of pods: %w", err)
	}
	bound := podInformer.GetIndexer()
	a.bound.Store(&bound)
	handled, err := podInformer.AddEventHandler(a.podHandler(ctx))
	if err != nil {
		return fmt.Errorf("setting up the watch of pods: %w", err)
	}
	if _, err = nodeInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { a.kickNode() }}); err != nil {
		return fmt.Errorf("setting up the watch of the node: %w", err)
	}
	for _, f := range []informers.SharedInformerFactory{pods, nodes} {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	if cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		a.wg.Go(func() { a.adoptOrphans(ctx) })
	}
	<-ctx.Done()
	return nil
}

// Pod is the pod of that name which is bound to the node, as the API server shows it; false when there is none. The caller does not
// change it.
func (a *Agent) Pod(namespace, name string) (*corev1.Pod, bool) {
	bound := a.bound.Load()
	if bound == nil {
		return nil, false
	}
	found, exists, err := (*bound).GetByKey(namespace + "/" + name)
	pod, isPod := found.(*corev1.Pod)
	return pod, err == nil && exists && isPod
}

// Pods are all that are bound to the node, as the API server shows them. The caller changes none of them.
func (a *Agent) Pods() []*corev1.Pod {
	bound := a.bound.Load()
	if bound == nil {
		return nil
	}
	var pods []*corev1.Pod
	for _, found := range (*bound).List() {
		if pod, isPod := found.(*corev1.Pod); isPod {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (a *Agent) informers(field string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(a.kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(field, a.opts.Name).String()
	}))
}

func dropManagedFields(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (a *Agent) podHandler(ctx context.Context) cache.ResourceEventHandler {
	deliver := func(obj any, gone bool) {
		if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tomb.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			a.deliver(ctx, sandbox.PodRef{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}, pod, gone)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { deliver(obj, false) },
		UpdateFunc: func(_, obj any) { deliver(obj, false) },
		DeleteFunc: func(obj any) { deliver(obj, true) },
	}
}

// deliver brings news to the pod's worker, making one where there is none. NODE-6: nothing here waits.
func (a *Agent) deliver(ctx context.Context, ref sandbox.PodRef, pod *corev1.Pod, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.workers[ref.UID]
	if w == nil {
		if ctx.Err() != nil {
			return
		}
		w = newWorker(a, ref)
		a.workers[ref.UID] = w
		w.mail.put(pod, gone)
		a.wg.Go(func() { w.run(ctx) })
		return
	}
	w.mail.put(pod, gone)
	w.poke()
}

// finish takes a worker off, unless there is mail that it has not read.
func (a *Agent) finish(w *worker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.mail.mu.Lock()
	defer w.mail.mu.Unlock()
	if w.mail.full {
		w.poke()
		return false
	}
	delete(a.workers, w.ref.UID)
	return true
}

// adoptOrphans gives a worker to every pod that the sandbox remembers and the API server does not show. The worker checks that its pod is
// really gone, and retries without limit: nothing else would stop the pod's containers.
func (a *Agent) adoptOrphans(ctx context.Context) {
	refs, err := a.opts.Sandbox.List(ctx)
	for pause := firstRetry; err != nil; pause = min(2*pause, lastRetry) {
		if ctx.Err() != nil {
			return
		}
		a.opts.Log.Error("listing the sandbox's records failed, retrying", "in", pause, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-a.opts.Clock.After(pause):
		}
		refs, err = a.opts.Sandbox.List(ctx)
	}
	for _, ref := range refs {
		a.mu.Lock()
		known := a.workers[ref.UID] != nil
		a.mu.Unlock()
		if !known {
			a.deliver(ctx, ref, nil, true)
		}
	}
}

func (a *Agent) kickNode() {
	select {
	case a.nodeKick <- struct{}{}:
	default:
	}
}
