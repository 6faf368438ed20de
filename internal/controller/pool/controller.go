package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Name of the controller, in logs, metrics and Events.
const Name = "runnerpool"

// Options configures the reconciler.
type Options struct {
	// Fence decides on removals, Reporter reports ends. Required; the server client is both.
	Fence    lifecycle.Fence
	Reporter Reporter
	// Logs reads the last log lines of runners that died; nil: none are read.
	Logs Logs
	// Scaler decides the size of pools that autoscale; nil: none does.
	Scaler Scaler
	// Wakes starts a pass for each pool that it receives, in addition to events; nil: only events do.
	Wakes <-chan event.TypedGenericEvent[types.NamespacedName]
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Workers is how many creations of one pass, and how many removals of all pools, are under way at once. The
	// default is 16.
	Workers int
	// Burst is how many runners one pass creates at most; the next follows at once. The default is 256.
	Burst int
	// Pools is how many pools are reconciled at once; the default is 4.
	Pools int
	// OrphanGrace is how old a ServiceAccount without a pod must be to be deleted: a controller that died may have sent
	// the creation of its pod, and nothing may overtake that. The default is one minute.
	OrphanGrace time.Duration
	// DisruptionTaints are the taints by which other tools say that they take a node away; nil: nodes.DefaultTaints.
	DisruptionTaints *nodes.Taints
	// Prepulls holds the pre-pull pods, trimmed by TrimPrepullPod. Required by Setup, which does not start it.
	Prepulls cache.Cache
	// Loads counts the runners on each node, those of other kinds included; nil: those of pools alone.
	Loads *nodeload.Book
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// NewSuffix ends the names of runners; the default is random.
	NewSuffix func() string
}

func (o Options) withDefaults() (Options, error) {
	if o.Fence == nil || o.Reporter == nil || o.Registry == nil || o.Log == nil {
		return o, errors.New("runnerpool: Fence, Reporter, Registry and Log are required")
	}
	if err := o.Pod.Validate(); err != nil {
		return o, err
	}
	orDefault := func(value *int, standard int) {
		if *value <= 0 {
			*value = standard
		}
	}
	orDefault(&o.Workers, 16)
	orDefault(&o.Burst, 256)
	orDefault(&o.Pools, 4)
	if o.OrphanGrace <= 0 {
		o.OrphanGrace = defaultOrphanGrace
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewSuffix == nil {
		o.NewSuffix = runnerpod.NewSuffix
	}
	return o, nil
}

// Reconciler reconciles RunnerPools.
type Reconciler struct {
	options  Options
	client   client.Client
	reader   client.Reader // past the cache
	tracker  *tracker
	removals *removals
	events   *eventWriter
	metrics  *metrics
	wake     chan event.TypedGenericEvent[types.NamespacedName]

	pullSecrets pullSecrets
}

// Setup adds the controller to the manager, whose cache must hold RunnerPools, the pods and ServiceAccounts that carry
// the runner label, and nodes.
func Setup(mgr manager.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(Name), options)
	if err != nil {
		return err
	}
	if err := mgr.Add(r.removals); err != nil {
		return fmt.Errorf("adding the removals: %w", err)
	}
	accounts, daemons := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	daemons.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	controllers := builder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.RunnerPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Pod{}, r.podEvents())).
		WatchesRawSource(source.Kind(mgr.GetCache(), accounts, r.accountEvents())).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{}, r.nodeEvents())).
		WatchesRawSource(source.Kind(mgr.GetCache(), daemons, r.daemonSetEvents())).
		WatchesRawSource(source.Kind(options.Prepulls, &corev1.Pod{}, r.prepullPodEvents())).
		WatchesRawSource(source.TypedChannel(r.wake, wakeEvents())).
		WithOptions(queues.Options(options.Pools))
	if options.Wakes != nil {
		controllers = controllers.WatchesRawSource(source.TypedChannel(options.Wakes, wakeEvents()))
	}
	if err := controllers.Complete(r); err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

func newReconciler(c client.Client, reader client.Reader, recorder events.EventRecorder, options Options) (*Reconciler, error) {
	r := &Reconciler{options: options, client: c, reader: reader, tracker: newTracker(),
		wake: make(chan event.TypedGenericEvent[types.NamespacedName], 1024)}
	r.tracker.orphanGrace = options.OrphanGrace
	if options.DisruptionTaints != nil {
		r.tracker.nodes.taints = *options.DisruptionTaints
	}
	if options.Loads != nil {
		r.tracker.loads = options.Loads
	}
	m, err := newMetrics(options.Registry, r.tracker)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	r.metrics = m
	r.events = &eventWriter{recorder: recorder, object: func(key types.NamespacedName) runtime.Object {
		if object := r.tracker.pool(key).reference(); object != nil {
			return object
		}
		return nil
	}}
	r.removals = &removals{
		tracker: r.tracker, remover: &removal.Remover{Client: c, Fence: options.Fence}, reporter: options.Reporter,
		logs: options.Logs, reader: reader, events: r.events, metrics: r.metrics, log: options.Log, now: options.Now,
		wake: func(ctx context.Context, key types.NamespacedName) {
			select {
			case r.wake <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
			case <-ctx.Done():
			}
		},
		workers: options.Workers, queue: newQueue(),
	}
	return r, nil
}

func (r *Reconciler) now() time.Time { return r.options.Now() }

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func wakeEvents() handler.TypedEventHandler[types.NamespacedName, reconcile.Request] {
	return handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q queue) {
			q.Add(reconcile.Request{NamespacedName: e.Object})
		},
	}
}

// podEvents keep the tracker up to date, an event at a time, and start a pass when a plan could tell the difference.
func (r *Reconciler) podEvents() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	seen := func(pod *corev1.Pod, q queue) {
		v := observe(pod)
		if v.pool == "" {
			return
		}
		key := types.NamespacedName{Namespace: v.namespace, Name: v.pool}
		if r.tracker.pool(key).podSeen(v, r.now()) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
		if r.tracker.nodes.suspect(v.node) {
			r.removals.checkNode(v.node)
		}
		r.startsMayGoOn(q)
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { seen(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			seen(e.Object, q) // its last state shows how it ended
			key := types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Labels[runnerpod.LabelPool]}
			if r.tracker.pool(key).podGone(e.Object.Name, string(e.Object.UID), r.now()) {
				r.removals.add(key, e.Object.Name) // its report and its ServiceAccount may be outstanding
				q.Add(reconcile.Request{NamespacedName: key})
			}
			r.startsMayGoOn(q)
		},
	}
}

func (r *Reconciler) accountEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, reconcile.Request] {
	seen := func(account *metav1.PartialObjectMetadata, exists bool, q queue) {
		pool := account.Labels[runnerpod.LabelPool]
		if pool == "" {
			return
		}
		key := types.NamespacedName{Namespace: account.Namespace, Name: pool}
		if look, after := r.tracker.pool(key).accountSeen(account.Name, exists, r.now()); look {
			r.removals.addAfter(key, account.Name, after)
		}
		if !exists {
			q.Add(reconcile.Request{NamespacedName: key}) // a drained pool waits for the last one
		}
	}
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], q queue) {
			seen(e.Object, true, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*metav1.PartialObjectMetadata], q queue) {
			seen(e.Object, false, q)
		},
	}
}

// Reconcile brings one pool closer to its spec: observe, plan, fence, act. Requests to the server, and every deletion, are left to the
// removals, so that a pass never waits for the server.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.tracker.nodes.setSynced() // no pass begins before every watch has shown what there was
	state := r.tracker.pool(request.NamespacedName)
	pool, err := r.load(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	rivals := r.rivals(ctx, request.NamespacedName, pool)
	if pool == nil {
		r.tracker.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	state.refer(pool)
	if err := r.learnLimits(ctx, pool.Namespace); err != nil {
		return reconcile.Result{}, err
	}
	if pool.DeletionTimestamp == nil && !controllerutil.ContainsFinalizer(pool, runnerpod.FinalizerPoolDrain) {
		// POOL-2: before the first pod. A pool that cannot be held is gone, and the cache will say so.
		if err := r.patchFinalizer(ctx, pool, controllerutil.AddFinalizer); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	before, decision := state.lastStatus(pool), r.decision(pool)
	wish, invalid, err := r.wish(pool, decision, before.DesiredReplicas)
	if err != nil {
		return reconcile.Result{}, err
	}
	if invalid != nil {
		r.events.invalid(request.NamespacedName, invalid)
	}
	state.condemn(decision.Removals, r.now())
	r.lookAtImages(ctx, pool, state, invalid)
	todo, err := r.plan(ctx, pool, state, wish)
	if err != nil {
		return reconcile.Result{}, err
	}
	if todo.ask {
		r.removals.addQuestions(request.NamespacedName)
	}
	failure := r.create(ctx, pool, state, todo)
	for _, name := range todo.remove { // behind the creations: a replacement is waited for, the end of what it replaces is not
		r.removals.add(request.NamespacedName, name)
	}
	images := r.keepImages(ctx, pool, state.key, invalid == nil)
	todo.plan.Next = earlier(todo.plan.Next, images.next)
	if wish.Terminating && todo.finished {
		return r.release(ctx, pool)
	}
	r.events.stuck(request.NamespacedName, todo.stuck)
	status, look := statusOf(pool, before, facts{
		wish: wish, plan: todo.plan, counts: state.counts(wish.TemplateHash), decision: decision, rivals: rivals, invalid: invalid,
		images: images,
	}, r.now())
	state.shows(status.Conditions)
	todo.plan.Next = earlier(todo.plan.Next, look)
	due, err := r.writeStatus(ctx, pool, state, status)
	if err := errors.Join(failure, err); err != nil && ctx.Err() == nil { // being stopped is no failure
		return reconcile.Result{}, err
	}
	return r.nextLook(todo, due), nil
}

// load reads the pool from the cache. A pool that is gone for certain while runners of it are left is treated like one that is being
// deleted: its finalizer was removed by force, and the runners were orphaned.
func (r *Reconciler) load(ctx context.Context, key types.NamespacedName) (*v1alpha1.RunnerPool, error) {
	var pool v1alpha1.RunnerPool
	err := r.client.Get(ctx, key, &pool)
	if err == nil {
		return &pool, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading pool %s: %w", key.Name, err)
	}
	if r.tracker.pool(key).empty() {
		return nil, nil
	}
	switch err := r.reader.Get(ctx, key, &pool); {
	case err == nil:
		return &pool, nil // the cache lags
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading pool %s: %w", key.Name, err)
	}
	now := metav1.NewTime(r.now())
	return &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, DeletionTimestamp: &now}}, nil
}

// rivals notes which labels a pool serves, nil for one that is gone, has a pass made for each pool that this concerns, and
// returns the live pools that contend for one of its labels (CLAIM-12).
func (r *Reconciler) rivals(ctx context.Context, key types.NamespacedName, pool *v1alpha1.RunnerPool) []rival {
	var labels []string
	if pool != nil && pool.DeletionTimestamp == nil {
		labels = pool.Spec.Labels // CLAIM-12: one that is being deleted does not count
	}
	rivals, changed := r.tracker.serve(key, labels)
	for _, other := range changed {
		r.removals.wake(ctx, other)
	}
	return rivals
}

// decision is what is known and decided for a pool; nothing, where no pool autoscales, and of a former pool of its name.
func (r *Reconciler) decision(pool *v1alpha1.RunnerPool) Decision {
	if r.options.Scaler == nil {
		return Decision{Blind: "the autoscaler is disabled in this controller"}
	}
	if d := r.options.Scaler.Decision(client.ObjectKeyFromObject(pool)); d.Pool == pool.UID {
		return d
	}
	return Decision{}
}

// wish reads what the pool wants. Of a template from which no pod may be built nothing is wanted but that what has
// ended goes: it must not be the reason to remove a runner that serves.
func (r *Reconciler) wish(pool *v1alpha1.RunnerPool, decision Decision, last *int32) (wish lifecycle.Wish, invalid, err error) {
	hash, err := runnerpod.TemplateHash(pool, r.options.Pod)
	if err != nil {
		return wish, nil, err
	}
	wish = wishOf(pool, hash, decision, last)
	if wish.Terminating {
		return wish, nil, nil
	}
	if _, _, err := runnerpod.Build(pool, r.options.Pod, "aaaaaaaa"); err != nil {
		wish.Paused, invalid = true, err
	}
	return wish, invalid, nil
}

func (r *Reconciler) create(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState, todo work) error {
	if len(todo.create) == 0 {
		return nil
	}
	err := r.createAll(ctx, pool, state, todo.create)
	r.events.created(state.key, todo.plan.CreateReason, todo.create)
	if err != nil {
		r.events.createFailed(state.key, err)
	}
	return err
}

// release removes the finalizer of a drained pool, once an uncached list by label shows no pod: the client that deleted the pool may have
// removed the pods' owner references (POOL-2).
func (r *Reconciler) release(ctx context.Context, pool *v1alpha1.RunnerPool) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pool, runnerpod.FinalizerPoolDrain) {
		r.tracker.forget(client.ObjectKeyFromObject(pool))
		return reconcile.Result{}, nil
	}
	var pods corev1.PodList
	err := r.reader.List(ctx, &pods, client.InNamespace(pool.Namespace), client.MatchingLabels{runnerpod.LabelPool: pool.Name}, client.Limit(1))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the pods of %s: %w", pool.Name, err)
	}
	if len(pods.Items) > 0 {
		return reconcile.Result{RequeueAfter: statusEvery}, nil // POOL-2: the cache lags; it will show the pod
	}
	r.events.write(client.ObjectKeyFromObject(pool), corev1.EventTypeNormal, reasonDrained, "Drain", "All runners are gone")
	return reconcile.Result{}, client.IgnoreNotFound(r.patchFinalizer(ctx, pool, controllerutil.RemoveFinalizer))
}

// patchFinalizer changes the pool's finalizers, of which others may have some: the resource version must still hold.
func (r *Reconciler) patchFinalizer(ctx context.Context, pool *v1alpha1.RunnerPool, change func(client.Object, string) bool) error {
	base := pool.DeepCopy()
	change(pool, runnerpod.FinalizerPoolDrain)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, pool, patch); err != nil {
		return fmt.Errorf("writing the finalizer of %s: %w", pool.Name, err)
	}
	return nil
}

// nextLook says when to look again although nothing has changed.
func (r *Reconciler) nextLook(todo work, status time.Duration) reconcile.Result {
	after := status
	if next := todo.plan.Next; !next.IsZero() {
		wait := max(next.Sub(r.now()), time.Millisecond)
		if after == 0 || wait < after {
			after = wait
		}
	}
	if todo.more {
		after = time.Millisecond
	}
	return reconcile.Result{RequeueAfter: after}
}

// refer remembers the pool for Events. The status of a former pool of its name does not apply to it.
func (s *poolState) refer(pool *v1alpha1.RunnerPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pool.UID == "" {
		return // nothing is left of it to write Events about
	}
	if s.object != nil && s.object.UID != pool.UID {
		s.status = statusWriter{}
	}
	s.object = reference(pool)
}

func (s *poolState) reference() *v1alpha1.RunnerPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object
}
