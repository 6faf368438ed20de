package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Name of the controller, in logs, metrics and Events.
const Name = "runner"

// Options configures the reconciler.
type Options struct {
	// Service registers and unregisters runners. Required.
	Service *registered.Service
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Runners is how many Runners are looked after at once; the default is 64: most of them may wait for a GitHub that hangs.
	Runners int
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// NewName makes names at GitHub; the default is registered.NewRunnerName.
	NewName func(runner string) string
}

func (o Options) withDefaults() (Options, error) {
	if o.Service == nil || o.Log == nil {
		return o, errors.New("runner: Service and Log are required")
	}
	if err := o.Pod.Validate(); err != nil {
		return o, err
	}
	if o.Runners <= 0 {
		o.Runners = 64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewName == nil {
		o.NewName = registered.NewRunnerName
	}
	return o, nil
}

// Reconciler reconciles Runners.
type Reconciler struct {
	options Options
	client  client.Client
	reader  client.Reader // past the cache
	service *registered.Service
	events  events.EventRecorder
	pauses  *pauses
}

// indexSecret finds Runners by the Secret with their credentials.
const indexSecret = "spec.credentials.secretName"

// Setup adds the controller to the manager, whose cache must hold Runners and what registered.Setup says.
func Setup(mgr manager.Manager, options Options) error {
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(Name), options)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Runner{}, indexSecret, secretsOf); err != nil {
		return fmt.Errorf("indexing Runners by Secret: %w", err)
	}
	wake := make(chan event.TypedGenericEvent[types.NamespacedName], 4096)
	options.Service.OnChange(func(pod types.NamespacedName) {
		select {
		case wake <- event.TypedGenericEvent[types.NamespacedName]{Object: pod}:
		default: // the periodic pass finds what matters
		}
	})
	secrets := &metav1.PartialObjectMetadata{} // of what is in them nothing enters the cache
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	theirs := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[runnerpod.LabelSelfRegistering] == "" })
	err = builder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.Runner{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&corev1.Pod{}).
		WatchesMetadata(secrets, handler.EnqueueRequestsFromMapFunc(r.usersOf), builder.WithPredicates(theirs)).
		WatchesRawSource(source.TypedChannel(wake, handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				q.Add(reconcile.Request{NamespacedName: e.Object})
			},
		})).
		WithOptions(queues.Options(r.options.Runners)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of Runners: %w", err)
	}
	return nil
}

// New returns a Reconciler; reader reads past the cache. Callers without a manager call Reconcile.
func New(c client.Client, reader client.Reader, recorder events.EventRecorder, options Options) (*Reconciler, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Reconciler{options: options, client: c, reader: reader, service: options.Service, events: recorder, pauses: newPauses()}, nil
}

func secretsOf(object client.Object) []string {
	runner, is := object.(*v1alpha1.Runner)
	if !is || runner.Spec.Credentials == nil {
		return nil
	}
	return []string{runner.Spec.Credentials.SecretName}
}

// usersOf enqueues the Runners that wait for the changed Secret.
func (r *Reconciler) usersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var runners v1alpha1.RunnerList
	if err := r.client.List(ctx, &runners, client.InNamespace(secret.GetNamespace()), client.MatchingFields{indexSecret: secret.GetName()}); err != nil {
		r.options.Log.Warn("cannot list the Runners that use a changed Secret", "secret", secret.GetName(), "error", err)
		return nil
	}
	var requests []reconcile.Request
	for i := range runners.Items {
		key := client.ObjectKeyFromObject(&runners.Items[i])
		if r.pauses.end(key) {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// pauses are the Runners that could not be registered, and until when that is not tried again, whatever wakes their
// controller. They survive no restart.
type pauses struct {
	mu    sync.Mutex
	until map[types.NamespacedName]pause
}

type pause struct {
	until      time.Time
	failures   int
	generation int64
	// reason and message are why: a pass that read an older status must not remove them.
	reason, message string
}

func newPauses() *pauses { return &pauses{until: map[types.NamespacedName]pause{}} }

// pausing is until when a Runner is not tried again, and why; false when it may be now.
func (p *pauses) pausing(key types.NamespacedName, generation int64, now time.Time) (pause, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.until[key]
	return last, last.generation == generation && now.Before(last.until)
}

// begin begins a pause: first, and twice as long each time up to slowest.
func (p *pauses) begin(
	key types.NamespacedName, generation int64, reason, message string, first, slowest time.Duration, notBefore, now time.Time,
) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.until[key]
	if last.generation != generation {
		last = pause{generation: generation}
	}
	last.until = now.Add(min(first<<min(last.failures, 8), slowest))
	if notBefore.After(last.until) {
		last.until = notBefore
	}
	last.failures++
	last.reason, last.message = reason, message
	p.until[key] = last
	return last.until
}

// end ends a pause, and reports whether there was one.
func (p *pauses) end(key types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, was := p.until[key]
	delete(p.until, key)
	return was
}

// pass is what one reconciliation has found out, and what it wants.
type pass struct {
	runner *v1alpha1.Runner
	status v1alpha1.RunnerStatus // to be written
	pod    *registered.View      // nil where there is none
	spent  bool                  // its pod is there or was: there will be no other
	place  registered.Place
	who    registered.Identity
	next   time.Time
	over   bool // nothing is left to be written down
	// unregistered: GitHub has removed its registration in this pass.
	unregistered bool
}

func (p *pass) key() types.NamespacedName { return client.ObjectKeyFromObject(p.runner) }

// lookAt requeues the Runner for that time, or earlier.
func (p *pass) lookAt(t time.Time) {
	if !t.IsZero() && (p.next.IsZero() || t.Before(p.next)) {
		p.next = t
	}
}

// phase does one thing, and reports whether the pass goes on.
type phase func(ctx context.Context, p *pass) (more bool, err error)

// Reconcile brings one Runner closer to its end.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var runner v1alpha1.Runner
	if err := r.client.Get(ctx, request.NamespacedName, &runner); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("reading Runner %s: %w", request.Name, err)
		}
		r.pauses.end(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	p := &pass{runner: &runner, status: *runner.Status.DeepCopy()}
	var failure error
	for _, do := range []phase{r.observe, r.leave, r.hold, r.end, r.check, r.register, r.create} {
		more, err := do(ctx, p)
		if failure = err; !more || err != nil {
			break
		}
	}
	if !p.over {
		if err := r.show(ctx, p); err != nil {
			failure = errors.Join(failure, err)
		}
	}
	if failure != nil && ctx.Err() == nil {
		return reconcile.Result{}, failure
	}
	if p.next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(p.next.Sub(r.options.Now()), time.Millisecond)}, nil
}
