package machost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
)

// Name of the controller, in logs, metrics and Events.
const Name = "machost"

// Options configures the reconciler.
type Options struct {
	// Bootstrapper makes the attempts. Required.
	Bootstrapper Bootstrapper
	// BinarySHA256 is of the bullpen binary that attempts bring along: another release is a reason to apply. Required.
	BinarySHA256 string
	// Namespace of the MacHosts. Required.
	Namespace string
	// SecretsNamespace is where the Secrets are that MacHosts name. Required.
	SecretsNamespace string
	// Attempts is how many are under way at once; the default is 4.
	Attempts int
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// Random is from [0, 1), for what must not happen at once; the default is math/rand's.
	Random func() float64
}

func (o Options) withDefaults() (Options, error) {
	if o.Bootstrapper == nil || o.BinarySHA256 == "" || o.Namespace == "" || o.SecretsNamespace == "" || o.Registry == nil || o.Log == nil {
		return o, errors.New("machost: Bootstrapper, BinarySHA256, Namespace, SecretsNamespace, Registry and Log are required")
	}
	if o.Attempts <= 0 {
		o.Attempts = 4
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o, nil
}

// Reconciler reconciles MacHosts, one at a time: attempts run in the background, and its own work takes milliseconds. One worker also means
// that it never cordons two hosts of a pool at once.
type Reconciler struct {
	options Options
	client  client.Client
	cache   client.Reader // pods, too
	reader  client.Reader // past the cache
	secrets *secrets
	crew    *crew
	events  *eventWriter
	metrics *metrics
	wake    chan event.TypedGenericEvent[types.NamespacedName]

	hosts seen[*v1alpha1.MacHost]
	nodes seen[*corev1.Node]
	// states of all hosts, for the metrics, which ask at any time.
	states atomic.Pointer[map[types.NamespacedName]State]
}

// errLookAgain reports that another client has changed an object concurrently.
var errLookAgain = errors.New("changed concurrently")

// Setup adds the controller to the manager, whose cache must hold MacHosts, ConfigMaps, runner pods and nodes as
// nodes.TrimNode leaves them.
func Setup(mgr manager.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	r := &Reconciler{
		options: options, client: mgr.GetClient(), cache: mgr.GetCache(), reader: mgr.GetAPIReader(),
		secrets: &secrets{reader: mgr.GetAPIReader(), namespace: options.SecretsNamespace, now: options.Now},
		wake:    make(chan event.TypedGenericEvent[types.NamespacedName], 1024),
		hosts:   seen[*v1alpha1.MacHost]{}, nodes: seen[*corev1.Node]{},
	}
	r.states.Store(&map[types.NamespacedName]State{})
	r.crew = newCrew(options.Bootstrapper, options.Attempts, options.Now, func(key types.NamespacedName) {
		select {
		case r.wake <- event.TypedGenericEvent[types.NamespacedName]{Object: key}:
		default: // the channel is full: the next periodic pass reconciles the host
		}
	})
	r.events = &eventWriter{mgr.GetEventRecorder(Name)}
	if r.metrics, err = newMetrics(options.Registry, r); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := mgr.Add(r.crew); err != nil {
		return fmt.Errorf("adding the attempts: %w", err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.MacHost{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Kind(mgr.GetCache(), &v1alpha1.MacHost{}, r.farewells())).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, r.configEvents())).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{}, r.nodeEvents())).
		WatchesRawSource(source.TypedChannel(r.wake, wakeEvents())).
		WithOptions(queues.Options(1)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

// Reconcile observes one host, decides, records the decision, and carries it out.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	select {
	case <-r.crew.started:
	case <-ctx.Done():
		return reconcile.Result{}, nil
	}
	again, err := r.look(ctx, request.NamespacedName)
	switch {
	case errors.Is(err, errLookAgain):
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	case err != nil && ctx.Err() == nil: // being stopped is no failure
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (r *Reconciler) look(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	all, err := r.listNodes(ctx)
	if err != nil {
		return 0, err
	}
	var hosts v1alpha1.MacHostList
	if err := r.client.List(ctx, &hosts, client.InNamespace(key.Namespace)); err != nil {
		return 0, fmt.Errorf("listing MacHosts: %w", err)
	}
	host := r.pick(key, hosts.Items)
	if host == nil {
		return 0, r.leave(ctx, key, all)
	}
	if err := r.release(ctx, key, nodeNameOf(host), all); err != nil {
		return 0, err
	}
	before := host.Status.DeepCopy()
	now := r.options.Now()
	job := r.crew.of(key)
	if job != nil && (job.UID != host.UID || host.DeletionTimestamp != nil) { // of a former host of this name, or of one that is being deleted
		r.crew.abandon(key, job)
		return time.Second, nil
	}
	ended := r.hear(host, job, now)
	o, w, err := r.observe(ctx, host, hosts.Items, all)
	if err != nil {
		return 0, err
	}
	o.Working = job != nil && !ended
	o.memory = o.bounded(now).notice(o.Node.well(), now)
	a := decide(o, now)
	if a.State == StateReady && a.Due == "" {
		o.memory = o.settled()
	}
	if a.Do == attempt {
		o.memory = o.begin(o.WantedNow, now, r.options.Random()).risking(o.memory, o.riskedAccount(w))
		w.Request.Hold = o.Node.inService() || o.FormerNode != ""
	}
	return a.Again, r.act(ctx, host, before, job, ended, o, w, a, now)
}

// act writes the status, and then does what was decided: an attempt that is not written down is not made.
func (r *Reconciler) act(ctx context.Context, host *v1alpha1.MacHost, before *v1alpha1.MacHostStatus, job *job, ended bool, o observed, w wanted, a action, now time.Time) error {
	key := client.ObjectKeyFromObject(host)
	s := &host.Status
	remember(s, o.memory)
	s.ObservedGeneration, s.NodeName = host.Generation, ""
	if o.Node.Wanted {
		s.NodeName = nodeNameOf(host)
	}
	show(s, a, o.Node, host.Generation, now)
	if err := r.writeStatus(ctx, host, before); err != nil {
		return err
	}
	r.setState(key, a.State)
	r.events.turned(host, before, s)
	if ended {
		_, result, took := job.view()
		r.metrics.attempt(result.Outcome, took)
		r.crew.forget(key, job)
	}
	switch a.Do {
	case attempt:
		if r.crew.begin(key, host.UID, w) {
			r.events.attempt(host, a.Why)
			r.options.Log.Info("configuring a Mac", "machost", key, "address", w.Request.Address, "why", a.Why)
		}
	case cordon, uncordon:
		if err := r.setCordon(ctx, key, o.node, a.Do == cordon); err != nil {
			return err
		}
		r.events.cordoned(host, o.node.Name, a.Do == cordon, a.Why)
		return errLookAgain
	}
	return nil
}

// hear records the progress of an attempt, and reports whether it has ended.
func (r *Reconciler) hear(host *v1alpha1.MacHost, j *job, now time.Time) bool {
	if j == nil {
		return false
	}
	steps, result, _ := j.view()
	showSteps(&host.Status, steps, result != nil && result.Outcome == OutcomeSucceeded, host.Generation, now)
	if result == nil {
		return false
	}
	m := recall(&host.Status)
	held := ""
	switch result.Outcome {
	case OutcomeWrongPassword:
		held = j.Account
	case OutcomeHostKeyChanged:
		held = j.Identity
	}
	m.Wanted = j.Wanted
	remember(&host.Status, m.end(result.Outcome, held, now, r.options.Random()))
	conclude(host, result, now)
	return true
}

// pick finds the host among all, as it was last written.
func (r *Reconciler) pick(key types.NamespacedName, hosts []v1alpha1.MacHost) *v1alpha1.MacHost {
	for i := range hosts {
		if hosts[i].Name == key.Name {
			latest := r.hosts.later(&hosts[i])
			return latest.DeepCopy()
		}
	}
	delete(r.hosts, key)
	return nil
}

// observe gathers the input of decide.
func (r *Reconciler) observe(ctx context.Context, host *v1alpha1.MacHost, hosts []v1alpha1.MacHost, all map[string]*corev1.Node) (observed, wanted, error) {
	o := observed{memory: recall(&host.Status), Paused: host.Spec.Paused || host.DeletionTimestamp != nil, Room: r.crew.room(), LastError: host.Status.LastError}
	w, wrong, err := r.want(ctx, host)
	if err != nil {
		return o, w, err
	}
	if wrong == nil {
		wrong = conflictOf(host, hosts)
	}
	o.Problem, o.WantedNow, o.Account, o.Identity = wrong, w.Hash, w.Account, w.Identity
	wantsNode := host.Status.NodeName != "" // of a configuration that cannot be read nothing new is known
	if wrong == nil {
		wantsNode = w.Request.Config.WantsNode()
	}
	o.node = all[nodeNameOf(host)]
	if o.Node, err = r.viewNode(ctx, host, o.node, wantsNode); err != nil {
		return o, w, err
	}
	o.Turn = turnOf(host, all, hosts)
	o.FormerNode, err = r.formerNode(ctx, host, hosts, all)
	return o, w, err
}

// writeStatus writes what has changed, if anything has. The version must still hold: a person who corrects the status is heard.
func (r *Reconciler) writeStatus(ctx context.Context, host *v1alpha1.MacHost, before *v1alpha1.MacHostStatus) error {
	if equality.Semantic.DeepEqual(before, &host.Status) {
		return nil
	}
	base := host.DeepCopy()
	base.Status = *before
	err := r.client.Status().Patch(ctx, host, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		delete(r.hosts, client.ObjectKeyFromObject(host))
		return errLookAgain
	}
	if err != nil {
		return fmt.Errorf("writing the status of %s: %w", host.Name, err)
	}
	r.hosts.wrote(host.DeepCopy())
	return nil
}

// leave handles a host that is gone: its attempt ends, and its Node is uncordoned if it had been cordoned for it. Mac and Node stay as they
// are. There is no finalizer: it would keep the namespace once the controller is gone, and the annotation on the Node holds all that is
// needed to uncordon it at any later time.
func (r *Reconciler) leave(ctx context.Context, key types.NamespacedName, all map[string]*corev1.Node) error {
	r.setState(key, "")
	if j := r.crew.of(key); j != nil {
		r.crew.abandon(key, j)
	}
	for _, node := range all {
		if !markedBy(node, key) {
			continue
		}
		var host v1alpha1.MacHost
		switch err := r.reader.Get(ctx, key, &host); {
		case err == nil:
			return errLookAgain // the cache lags
		case !apierrors.IsNotFound(err): // only what is gone for certain
			return fmt.Errorf("reading MacHost %s: %w", key.Name, err)
		}
		if err := r.setCordon(ctx, key, node, false); err != nil {
			return err
		}
		r.options.Log.Info("uncordoned the node of a deleted MacHost", "machost", key, "node", node.Name)
	}
	return nil
}

// release uncordons what was cordoned for a former host of this name, whose Node was another.
func (r *Reconciler) release(ctx context.Context, key types.NamespacedName, own string, all map[string]*corev1.Node) error {
	for _, node := range all {
		if node.Name != own && markedBy(node, key) {
			if err := r.setCordon(ctx, key, node, false); err != nil {
				return err
			}
			r.options.Log.Info("uncordoned the node of a former MacHost of this name", "machost", key, "node", node.Name)
		}
	}
	return nil
}

// setState notes a host's state for the metrics; an empty one forgets it.
func (r *Reconciler) setState(key types.NamespacedName, state State) {
	old := *r.states.Load()
	if old[key] == state {
		return
	}
	next := make(map[types.NamespacedName]State, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[key] = state
	if state == "" {
		delete(next, key)
	}
	r.states.Store(&next)
}
