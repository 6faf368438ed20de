package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// observation is what one pass has seen. It keeps no pointer into a cache.
type observation struct {
	err     error // there is nothing to plan with
	input   scaling.Input
	keys    map[string]types.NamespacedName // of the pools, by the plan's name
	pools   map[string]scaling.Pool
	uids    map[types.NamespacedName]types.UID
	demand  map[types.NamespacedName]runnerapi.PoolSignals // what is recent
	removed map[types.NamespacedName]map[string]string     // by pool, then UID: the proof
}

// observe reads everything once for all pools.
func (a *Autoscaler) observe(ctx context.Context) observation {
	signals, failure := a.ask(ctx) // first: it may take its time, and the rest is at hand
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	now := a.options.Now()
	seen := observation{
		input: scaling.Input{Now: now}, keys: map[string]types.NamespacedName{}, pools: map[string]scaling.Pool{}, uids: map[types.NamespacedName]types.UID{},
		demand: map[types.NamespacedName]runnerapi.PoolSignals{}, removed: map[types.NamespacedName]map[string]string{},
	}
	seen.takeSignals(signals, failure, a.lastAt)
	if failure == nil {
		a.lastAt = signals.At
	}
	var pools v1alpha1.RunnerPoolList
	if err := a.cache.List(ctx, &pools, client.InNamespace(a.options.Namespace)); err != nil {
		seen.err = fmt.Errorf("listing pools: %w", err)
		return seen
	}
	fleet, err := a.nodes(ctx)
	if err != nil {
		seen.input.NodesProblem = err.Error() // POOL-8
	}
	for i := range pools.Items {
		a.takePool(ctx, &seen, &pools.Items[i], fleet)
	}
	if err := a.countElsewhere(ctx, &seen, fleet); err != nil {
		seen.input.NodesProblem = err.Error() // POOL-8
	}
	for _, pool := range seen.pools {
		seen.input.Pools = append(seen.input.Pools, pool)
	}
	return seen
}

func (a *Autoscaler) ask(ctx context.Context) (runnerapi.Signals, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	return a.options.Source.Signals(ctx)
}

func nameOf(namespace, name string) string { return namespace + "/" + name }

// takeSignals converts the server's answer to the plan's form. An unusable answer means that no pool has data.
func (seen *observation) takeSignals(signals runnerapi.Signals, failure error, previous time.Time) {
	in := &seen.input.Signals
	if failure != nil {
		in.Problem = failure.Error() // POOL-8
		return
	}
	in.At, in.Previous, in.Pools = signals.At, previous, make(map[string]scaling.Signal, len(signals.Pools))
	for _, p := range signals.Pools {
		blocked := 0
		for _, jobs := range p.Blocked {
			blocked += jobs
		}
		in.Pools[nameOf(p.Namespace, p.Name)] = scaling.Signal{
			Occupied: p.Occupied, Claimed: p.Claimed, Queued: p.Queued, Blocked: blocked, P95: p.P95LastHour,
		}
	}
	if in.Unusable(seen.input.Now) != "" {
		return
	}
	for _, p := range signals.Pools {
		seen.demand[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	}
	for _, r := range signals.Removals {
		key := types.NamespacedName{Namespace: r.Pod.Namespace, Name: r.Pod.Pool}
		if seen.removed[key] == nil {
			seen.removed[key] = map[string]string{}
		}
		seen.removed[key][r.Pod.UID] = r.Proof
	}
}

func (a *Autoscaler) nodes(ctx context.Context) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := a.cache.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// takePool brings a pool into the plan's form.
func (a *Autoscaler) takePool(ctx context.Context, seen *observation, pool *v1alpha1.RunnerPool, fleet []corev1.Node) {
	key := client.ObjectKeyFromObject(pool)
	p := poolspec.Scaling(pool, nameOf(pool.Namespace, pool.Name))
	p.State = a.stateOf(key, pool)
	class, err := a.runtimeClass(ctx, pool)
	if err != nil {
		p.Problem = err.Error() // POOL-8: without the overhead a runner's size is unknown
	}
	options := a.options.Pod
	options.Around.Architecture = defaultArchitecture(fleet)
	placement, err := nodes.PlacementOf(pool, options, class)
	if err != nil {
		p.Problem = err.Error()
	}
	p.Runner = scaling.Room(placement.Pod())
	for i := range fleet {
		if placement.Usable(&fleet[i]) {
			p.Nodes = append(p.Nodes, fleet[i].Name)
			if seen.input.Nodes == nil {
				seen.input.Nodes = map[string]scaling.Room{}
			}
			seen.input.Nodes[fleet[i].Name] = scaling.Room(nodes.Allocatable(&fleet[i]))
		}
	}
	seen.keys[p.Name], seen.pools[p.Name], seen.uids[key] = key, p, pool.UID
}

func defaultArchitecture(fleet []corev1.Node) v1alpha1.Architecture {
	shown := make([]*corev1.Node, 0, len(fleet))
	for i := range fleet {
		shown = append(shown, &fleet[i])
	}
	return runnerpod.DefaultArchitecture(shown)
}

// stateOf is what the last pass left, or, for a pool that this process has not seen before, what its status says.
func (a *Autoscaler) stateOf(key types.NamespacedName, pool *v1alpha1.RunnerPool) scaling.State {
	if state, known := a.states[key]; known && a.uids[key] == pool.UID { // a pool of the same name has no part in its past
		return state
	}
	state := scaling.State{}
	if desired := pool.Status.DesiredReplicas; desired != nil {
		state.Desired, state.Decided = int(*desired), true
	}
	if last := pool.Status.LastScaleDownTime; last != nil {
		state.LastScaleDown = last.Time
	}
	return state
}

func (a *Autoscaler) runtimeClass(ctx context.Context, pool *v1alpha1.RunnerPool) (*nodev1.RuntimeClass, error) {
	name := pool.Spec.Template.RuntimeClassName
	if name == nil || *name == "" {
		return nil, nil
	}
	var class nodev1.RuntimeClass
	if err := a.cache.Get(ctx, types.NamespacedName{Name: *name}, &class); err != nil {
		return nil, fmt.Errorf("reading the runtime class %s: %w", *name, err)
	}
	return &class, nil
}

// countElsewhere counts the runners that are on nodes on which their pool could start none now. Where every node is usable
// by every pool there are none worth the look.
func (a *Autoscaler) countElsewhere(ctx context.Context, seen *observation, fleet []corev1.Node) error {
	usable := func(p scaling.Pool) bool { return len(p.Nodes) == len(fleet) }
	all := true
	for _, p := range seen.pools {
		all = all && usable(p)
	}
	if all {
		return nil
	}
	var pods corev1.PodList
	if err := a.cache.List(ctx, &pods, client.InNamespace(a.options.Namespace), client.HasLabels{runnerpod.LabelRunner}); err != nil {
		return fmt.Errorf("listing runner pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := nameOf(pod.Namespace, pod.Labels[runnerpod.LabelPool])
		p, known := seen.pools[name]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || podsigns.Stopped(pod)
		if known && !ended && pod.Spec.NodeName != "" && !slices.Contains(p.Nodes, pod.Spec.NodeName) {
			p.Elsewhere++
			seen.pools[name] = p
		}
	}
	return nil
}
