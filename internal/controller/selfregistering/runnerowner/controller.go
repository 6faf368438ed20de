package runnerowner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Service is what this package needs of registered.Service.
type Service interface {
	lifecycle.Fence
	Place(node string) registered.Place
	Loads() *nodeload.Book
	OnChange(notify func(pod types.NamespacedName))
}

// Options configures the controller of one kind of owner.
type Options struct {
	// Backing of the kind. Required.
	Backing Backing
	// Service decides on removals, and knows nodes. Required.
	Service Service
	// Most is how many members of the kind there may be before none is added; 0 for no limit.
	Most int
	// Workers is how many creations of one pass are under way at once; the default is 16.
	Workers int
	// Crew is how many tasks of one owner are under way at once beside its passes; the default is 8.
	Crew int
	// Owners is how many owners are reconciled at once; the default is 4.
	Owners int
	// Registry takes the metrics, and Log what no Event or condition says. Required.
	Registry prometheus.Registerer
	Log      *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Backing == nil || o.Service == nil || o.Registry == nil || o.Log == nil {
		return o, errors.New("runnerowner: Backing, Service, Registry and Log are required")
	}
	for value, standard := range map[*int]int{&o.Workers: 16, &o.Crew: 8, &o.Owners: 4} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Reconciler reconciles the owners of one kind.
type Reconciler struct {
	options Options
	kind    string
	reader  client.Reader // past the cache
	cache   client.Reader
	tracker *tracker
	events  *eventWriter
	metrics *metrics
	woken   chan event.TypedGenericEvent[types.NamespacedName]
	shift   *shift
}

// Setup adds the controller of one kind of owner to the manager, whose cache must hold the owners, their members, and the pods of
// self-registering runners as registered.TrimPod leaves them.
func Setup(mgr manager.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	r := &Reconciler{options: options, kind: options.Backing.Kind(), reader: mgr.GetAPIReader(), cache: mgr.GetCache(),
		events: &eventWriter{mgr.GetEventRecorder(options.Backing.Kind())}, woken: make(chan event.TypedGenericEvent[types.NamespacedName], 1024),
		shift: newShift()}
	r.tracker = newTracker(options.Service.Place, options.Now, func(s *ownerState) {
		s.cluster = &crew{width: options.Crew, shift: r.shift}
		s.github = &crew{width: options.Crew, shift: r.shift}
	})
	r.tracker.loads = options.Service.Loads()
	if r.metrics, err = newMetrics(options.Registry, r.kind, r.tracker); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := mgr.Add(r); err != nil {
		return fmt.Errorf("adding the crews: %w", err)
	}
	options.Service.OnChange(r.placeChanged)
	secrets := &metav1.PartialObjectMetadata{} // of what is in them nothing enters the cache
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	theirs := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[runnerpod.LabelSelfRegistering] == "" })
	err = builder.ControllerManagedBy(mgr).Named(r.kind).
		For(options.Backing.NewOwner()).
		WatchesRawSource(source.Kind(mgr.GetCache(), options.Backing.NewMember(), r.memberEvents())).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Pod{}, r.podEvents())).
		WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(r.secretChanged), builder.WithPredicates(theirs)).
		WatchesRawSource(source.TypedChannel(r.woken, handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q queue) {
				q.Add(reconcile.Request{NamespacedName: e.Object})
			},
		})).
		WithOptions(queues.Options(options.Owners)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of %s: %w", r.kind, err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (r *Reconciler) now() time.Time { return r.options.Now() }

// Start holds the crews' work until ctx ends, and returns when all of it has.
func (r *Reconciler) Start(ctx context.Context) error {
	<-ctx.Done()
	r.shift.end()
	return nil
}

// NeedLeaderElection makes the leader alone remove runners.
func (r *Reconciler) NeedLeaderElection() bool { return true }

// wake has a pass made for an owner.
func (r *Reconciler) wake(ctx context.Context, key types.NamespacedName) {
	select {
	case r.woken <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
	case <-ctx.Done():
	}
}

// memberEvents keep the tracker up to date, and start a pass when it could tell the difference.
func (r *Reconciler) memberEvents() handler.TypedEventHandler[client.Object, reconcile.Request] {
	seen := func(ctx context.Context, object client.Object, q queue) {
		m, ours := r.options.Backing.Observe(object)
		name := keyOf(object)
		if before := r.tracker.of(name); before != nil && (!ours || before.uid != m.OwnerUID) {
			before.memberGone(name.Name, string(object.GetUID()), r.now()) // it was orphaned, or is another's now
			q.Add(reconcile.Request{NamespacedName: before.key})
		}
		if !ours {
			return
		}
		s := r.tracker.owner(types.NamespacedName{Namespace: m.Namespace, Name: m.OwnerName}, m.OwnerUID)
		r.tracker.have(name, s)
		if s.memberSeen(m, r.podOf(ctx, name), r.now()) {
			q.Add(reconcile.Request{NamespacedName: s.key})
		}
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q queue) { seen(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) { seen(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], q queue) {
			if s := r.tracker.of(keyOf(e.Object)); s != nil && s.memberGone(e.Object.GetName(), string(e.Object.GetUID()), r.now()) {
				q.Add(reconcile.Request{NamespacedName: s.key})
			}
		},
	}
}

// podOf is a member's pod as the cache has it; nil for none.
func (r *Reconciler) podOf(ctx context.Context, member types.NamespacedName) *registered.View {
	var pod corev1.Pod
	member.Name = r.options.Backing.PodOf(member.Name)
	if err := r.cache.Get(ctx, member, &pod); err != nil {
		return nil // it will come by the watch
	}
	v := registered.Observe(&pod)
	return &v
}

func (r *Reconciler) podEvents() handler.TypedEventHandler[*corev1.Pod, reconcile.Request] {
	memberOf := func(pod *corev1.Pod) (*ownerState, string) {
		if pod.Labels[runnerpod.LabelSelfRegistering] != "true" {
			return nil, ""
		}
		name := r.options.Backing.MemberOf(pod.Name)
		return r.tracker.of(types.NamespacedName{Namespace: pod.Namespace, Name: name}), name
	}
	seen := func(pod *corev1.Pod, q queue) {
		if s, name := memberOf(pod); s != nil {
			v := registered.Observe(pod)
			if s.podSeen(name, &v, r.now()) {
				q.Add(reconcile.Request{NamespacedName: s.key})
			}
		}
	}
	return handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Pod], q queue) { seen(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Pod], q queue) { seen(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			if s, name := memberOf(e.Object); s != nil {
				v := registered.Observe(e.Object) // its last state shows how it ended
				s.podSeen(name, &v, r.now())
				if s.podGone(name, v.UID, r.now()) {
					q.Add(reconcile.Request{NamespacedName: s.key})
				}
			}
		},
	}
}

// placeChanged requeues a runner whose node or registration has changed. It does not block.
func (r *Reconciler) placeChanged(pod types.NamespacedName) {
	name := r.options.Backing.MemberOf(pod.Name)
	if s := r.tracker.of(types.NamespacedName{Namespace: pod.Namespace, Name: name}); s != nil && s.lookAgain(name, r.now()) {
		r.give(s, s.cluster, "look around", func(context.Context) {})
	}
}

// secretChanged requeues the owners with a member that could not be registered with the Secret's content.
func (r *Reconciler) secretChanged(_ context.Context, secret client.Object) []reconcile.Request {
	var requests []reconcile.Request
	r.tracker.each(func(s *ownerState) {
		if s.key.Namespace == secret.GetNamespace() && s.tryAgain(secret.GetName(), r.now()) {
			requests = append(requests, reconcile.Request{NamespacedName: s.key})
		}
	})
	return requests
}

// Reconcile brings one owner closer to its spec: observe, plan, fence, act. It speaks to the API server alone; what may wait for
// GitHub is the crew's.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	o, err := r.options.Backing.Load(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading %s %s: %w", r.kind, request.Name, err)
	}
	if o == nil {
		r.tracker.loaded(request.NamespacedName, "")
		return reconcile.Result{}, nil
	}
	r.tracker.loaded(request.NamespacedName, string(o.Object.GetUID()))
	s := r.tracker.owner(request.NamespacedName, string(o.Object.GetUID()))
	s.refer(o)
	if !o.terminating() && !o.Protected { // before the first member
		if err := r.options.Backing.Hold(ctx, o); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	w := s.makePlan(o, r.room(), r.now())
	r.dispatch(s, w)
	failure := r.create(ctx, o, s, w)
	if w.done {
		return r.release(ctx, o)
	}
	due, err := r.writeStatus(ctx, o, s, w)
	if err := errors.Join(failure, err); err != nil && ctx.Err() == nil {
		return reconcile.Result{}, err
	}
	next := w.plan.Next
	if due > 0 {
		next = earlier(next, r.now().Add(due))
	}
	if next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(next.Sub(r.now()), time.Millisecond)}, nil
}

// room is how many members there may be more; negative: any number.
func (r *Reconciler) room() int {
	if r.options.Most <= 0 {
		return -1
	}
	return max(0, r.options.Most-r.tracker.total())
}

// create makes the missing members: exactly those, in this pass, each under a name of its own (K 2.1). A failure is no error of the pass:
// the next is made when the hold is over.
func (r *Reconciler) create(ctx context.Context, o *Owner, s *ownerState, w work) error {
	names := w.again
	if w.create > 0 {
		fresh, err := r.options.Backing.Names(ctx, o, w.create, s.taken(r.now()))
		if err != nil {
			return fmt.Errorf("naming runners of %s: %w", s.key.Name, err)
		}
		s.reserve(fresh, o.TemplateHash, r.now())
		for _, name := range fresh {
			r.tracker.have(types.NamespacedName{Namespace: s.key.Namespace, Name: name}, s)
		}
		names = append(names, fresh...)
	}
	var made []string
	var failure error
	if len(names) > 0 {
		made, failure = r.createAll(ctx, o, s, names)
		r.events.created(s, w.plan.CreateReason, made)
		if failure != nil {
			r.metrics.failures.WithLabelValues(r.kind, "create").Inc()
			r.events.createFailed(s, failure)
			r.options.Log.Warn("creating runners failed, retrying", "kind", r.kind, "owner", s.key.Name, "error", failure)
			r.give(s, s.cluster, "look around", func(context.Context) {}) // the hold is known now, and when it ends
		}
	}
	if !o.terminating() && o.Invalid == nil {
		s.completed(o, len(made), r.now())
	}
	return nil
}

// release removes the finalizer of an owner of which nothing is left.
func (r *Reconciler) release(ctx context.Context, o *Owner) (reconcile.Result, error) {
	if !o.Protected {
		return reconcile.Result{}, nil
	}
	if err := r.options.Backing.Release(ctx, o); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, nil
}

// writeStatus writes the status if it has changed and may be written now; otherwise it says when it may.
func (r *Reconciler) writeStatus(ctx context.Context, o *Owner, s *ownerState, w work) (time.Duration, error) {
	now := r.now()
	status := statusOf(o, s.facts(o, w, now), now)
	if due := s.statusDue(status, now); due != 0 {
		return due, nil
	}
	if err := r.options.Backing.WriteStatus(ctx, o, status); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("writing the status of %s: %w", s.key.Name, err))
	}
	r.events.turned(s, s.statusWritten(status, now), status.Conditions)
	return 0, nil
}
