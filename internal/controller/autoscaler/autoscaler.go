package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	runnerpool "github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Source says what all pools are asked for, whole or not at all.
type Source interface {
	// Signals asks the server. An error means that nothing is known, not that nothing is asked for.
	Signals(ctx context.Context) (runnerapi.Signals, error)
}

// Options configures an Autoscaler.
type Options struct {
	// Source of the signals. Required.
	Source Source
	// Namespace of the pools. Required.
	Namespace string
	// Pod is what every runner pod has in common; it decides what a runner takes of a node.
	Pod runnerpod.Options
	// Busy is the time between two passes while a pool autoscales or jobs wait, Quiet the same at other times. The
	// defaults are 2 s and 10 s.
	Busy, Quiet time.Duration
	// Timeout bounds how long a pass waits for the server, and then for the caches; the default is 10 s.
	Timeout time.Duration
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log receives each change of a decision, and each failure to observe. Required.
	Log *slog.Logger
	// Now is the clock, After its timer; the defaults are those of package time.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Source == nil || o.Namespace == "" || o.Registry == nil || o.Log == nil {
		return o, errors.New("autoscaler: Source, Namespace, Registry and Log are required")
	}
	if err := o.Pod.Validate(); err != nil {
		return o, err
	}
	orDefault := func(value *time.Duration, standard time.Duration) {
		if *value <= 0 {
			*value = standard
		}
	}
	orDefault(&o.Busy, 2*time.Second)
	orDefault(&o.Quiet, 10*time.Second)
	orDefault(&o.Timeout, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	return o, nil
}

// Autoscaler is a Runnable of a manager, for the leader only, and the pools' Scaler.
type Autoscaler struct {
	options Options
	cache   client.Reader
	metrics *metrics
	wakes   chan event.TypedGenericEvent[types.NamespacedName]
	nudge   chan struct{} // a pool's spec has changed

	mu      sync.RWMutex
	verdict map[types.NamespacedName]verdict // what is published

	// Of the passes alone:
	states map[types.NamespacedName]scaling.State
	uids   map[types.NamespacedName]types.UID // whose states these are: names are used again
	lastAt time.Time                          // of the last signals
	blind  string                             // what was last logged
}

var _ runnerpool.Scaler = (*Autoscaler)(nil)

// Setup adds an autoscaler to the manager, whose cache must hold RunnerPools, Nodes, RuntimeClasses and runner pods.
func Setup(mgr manager.Manager, options Options) (*Autoscaler, error) {
	a, err := newAutoscaler(mgr.GetCache(), options)
	if err != nil {
		return nil, err
	}
	informer, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.RunnerPool{})
	if err != nil {
		return nil, fmt.Errorf("watching pools: %w", err)
	}
	if _, err := informer.AddEventHandler(a.specEvents()); err != nil {
		return nil, fmt.Errorf("watching pools: %w", err)
	}
	if err := mgr.Add(a); err != nil {
		return nil, fmt.Errorf("adding the autoscaler: %w", err)
	}
	return a, nil
}

func newAutoscaler(cache client.Reader, options Options) (*Autoscaler, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Autoscaler{
		options: options, cache: cache, nudge: make(chan struct{}, 1),
		wakes:   make(chan event.TypedGenericEvent[types.NamespacedName], 1024),
		verdict: map[types.NamespacedName]verdict{}, states: map[types.NamespacedName]scaling.State{},
	}
	if a.metrics, err = newMetrics(options.Registry, a); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return a, nil
}

// Wakes gives each pool whose decision has changed.
func (a *Autoscaler) Wakes() <-chan event.TypedGenericEvent[types.NamespacedName] { return a.wakes }

// Decision implements runnerpool.Scaler.
func (a *Autoscaler) Decision(pool types.NamespacedName) runnerpool.Decision {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.verdict[pool].Decision
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: two autoscalers would each have a past of their own.
func (a *Autoscaler) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable: a pass after the other until ctx ends.
func (a *Autoscaler) Start(ctx context.Context) error {
	for {
		wait := a.pass(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-a.options.After(wait):
		case <-a.nudge:
		}
	}
}

// specEvents start a pass when a pool is new or its spec has changed, so that a user's change takes effect at once.
func (a *Autoscaler) specEvents() toolscache.ResourceEventHandler {
	look := func() {
		select {
		case a.nudge <- struct{}{}:
		default: // one is enough
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { look() },
		UpdateFunc: func(before, after any) {
			old, wasPool := before.(*v1alpha1.RunnerPool)
			changed, isPool := after.(*v1alpha1.RunnerPool)
			if wasPool && isPool && old.Generation != changed.Generation {
				look()
			}
		},
	}
}

// pass looks, plans and publishes once, and says how long to wait for the next.
func (a *Autoscaler) pass(ctx context.Context) time.Duration {
	seen := a.observe(ctx)
	if ctx.Err() != nil {
		return 0 // what an interrupted look has shown is not worth publishing
	}
	if seen.err != nil {
		a.metrics.passes.WithLabelValues("no_data").Inc()
		a.complain(seen.err.Error())
		a.publishBlind(ctx, seen.err.Error())
		return a.options.Busy
	}
	results := scaling.Plan(seen.input)
	a.remember(seen, results)
	a.publish(ctx, seen, results)
	return a.nextPass(seen, results)
}

func (a *Autoscaler) remember(seen observation, results []scaling.Result) {
	states := make(map[types.NamespacedName]scaling.State, len(results))
	blind := seen.input.Signals.Problem
	for _, r := range results {
		key, p := seen.keys[r.Name], seen.pools[r.Name]
		states[key] = r.State
		if r.Blind != "" {
			blind = fmt.Sprintf("pool %s: %s", key.Name, r.Blind)
		} else if p.Autoscaled && r.Desired != p.State.Desired {
			direction := "up"
			if r.Desired < p.State.Desired {
				direction = "down"
			}
			a.metrics.decisions.WithLabelValues(key.Name, direction).Inc()
			a.options.Log.Info("pool scaled", "pool", key.Name, "from", p.State.Desired, "to", r.Desired, "why", r.Why(), "short", r.Short)
		}
	}
	for key := range a.states {
		if _, there := states[key]; !there {
			a.metrics.forget(key.Name)
		}
	}
	a.states, a.uids = states, seen.uids
	outcome := "decided"
	if blind != "" {
		outcome = "no_data"
	}
	a.metrics.passes.WithLabelValues(outcome).Inc()
	a.complain(blind)
}

// complain logs a new reason to leave numbers alone, and its end.
func (a *Autoscaler) complain(blind string) {
	switch {
	case blind != "" && a.blind == "":
		a.options.Log.Warn("autoscaling suspended: data is missing, pool size unchanged", "reason", blind)
	case blind == "" && a.blind != "":
		a.options.Log.Info("autoscaling resumed")
	}
	a.blind = blind
}

func (a *Autoscaler) nextPass(seen observation, results []scaling.Result) time.Duration {
	wait := a.options.Quiet
	for _, p := range seen.pools {
		if p.Autoscaled && !p.Terminating || seen.input.Signals.Pools[p.Name].Queued > 0 {
			wait = a.options.Busy
		}
	}
	for _, r := range results {
		if !r.Next.IsZero() {
			wait = min(wait, max(r.Next.Sub(seen.input.Now), a.options.Busy/10))
		}
	}
	return wait
}
