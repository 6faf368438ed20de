package autoscaler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	runnerpool "github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// bench is an autoscaler over a cache that tests write, and a server that answers what they say.
type bench struct {
	*testing.T
	client.Client
	*Autoscaler
	registry *prometheus.Registry
	now      time.Time
	signals  runnerapi.Signals
	down     error
	fail     map[string]error // by kind that is listed or read
	asked    atomic.Int64
}

// Signals implements Source.
func (b *bench) Signals(context.Context) (runnerapi.Signals, error) {
	b.asked.Add(1)
	b.signals.At = b.now
	return b.signals, b.down
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	b := &bench{T: t, now: t0, fail: map[string]error{}}
	b.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.RunnerPool{}).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind, err := c.GroupVersionKindFor(list)
			require.NoError(t, err)
			if failure := b.fail[strings.TrimSuffix(kind.Kind, "List")]; failure != nil {
				return failure
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	b.start()
	return b
}

// start makes an autoscaler that knows nothing yet.
func (b *bench) start() {
	b.registry = prometheus.NewRegistry()
	a, err := newAutoscaler(b.Client, Options{
		Source: b, Namespace: "ns", Pod: runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		Registry: b.registry, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return b.now },
	})
	require.NoError(b, err)
	b.Autoscaler = a
}

// look is a pass, after so long; it gives the pools that were woken and the time until the next.
func (b *bench) look(after time.Duration) (woken []string, next time.Duration) {
	b.now = b.now.Add(after)
	next = b.pass(b.Context())
	for len(b.wakes) > 0 {
		woken = append(woken, (<-b.wakes).Object.Name) // bounded: its length is not zero
	}
	slices.Sort(woken)
	return woken, next
}

func (b *bench) decision(name string) runnerpool.Decision {
	return b.Decision(types.NamespacedName{Namespace: "ns", Name: name})
}

func (b *bench) ask(pools ...runnerapi.PoolSignals) {
	for i := range pools {
		pools[i].Namespace = "ns"
	}
	b.signals.Pools = pools
}

func pool(name string, minIdle, most int32, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	p := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{name}, Replicas: ptr.To[int32](1),
			Resources:   v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
			Template:    v1alpha1.RunnerTemplate{Image: "runner:1"},
			Autoscaling: &v1alpha1.Autoscaling{Enabled: true, MinIdle: &minIdle, MaxReplicas: &most},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func had(desired int32, lowered time.Time) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) {
		p.Status.DesiredReplicas = &desired
		if !lowered.IsZero() {
			p.Status.LastScaleDownTime = &metav1.Time{Time: lowered}
		}
	}
}

func fixed(p *v1alpha1.RunnerPool) { p.Spec.Autoscaling = nil }

func node(name string, runners int64) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/os": "linux"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewQuantity(runners+1, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("900Gi"), corev1.ResourcePods: *resource.NewQuantity(runners, resource.DecimalSI),
				corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func TestPass_PublishesAndWakesWhatHasChanged(t *testing.T) {
	b := newBench(t, node("n", 100), pool("a", 0, 50), pool("b", 1, 50), pool("f", 0, 0, fixed))
	require.Equal(t, runnerpool.Decision{}, b.decision("a"), "nothing before the first pass")
	oldest := t0.Add(-time.Minute)
	b.ask(runnerapi.PoolSignals{Name: "a"}, runnerapi.PoolSignals{Name: "b"}, runnerapi.PoolSignals{Name: "f", Occupied: 1, Claimed: 2, Queued: 3, OldestQueued: &oldest,
		Blocked: map[runnerapi.BlockedReason]int{runnerapi.BlockedLimit: 2, runnerapi.BlockedBackoff: 3}})
	woken, next := b.look(0)
	require.Equal(t, []string{"a", "b", "f"}, woken)
	require.Equal(t, 2*time.Second, next)
	require.Equal(t, runnerpool.Decision{Decided: true, Demand: &runnerpool.Demand{}}, b.decision("a"))
	require.Equal(t, 1, b.decision("b").Desired)
	require.Equal(t, runnerpool.Decision{Desired: 1, Decided: true, Demand: &runnerpool.Demand{Occupied: 2, Queued: 3, Blocked: 5, OldestQueued: oldest}}, b.decision("f"))
	require.EqualValues(t, 1, b.asked.Load(), "one question for all pools")

	woken, _ = b.look(2 * time.Second)
	require.Empty(t, woken, "nothing has changed")
	b.ask(runnerapi.PoolSignals{Name: "a", Queued: 3}, runnerapi.PoolSignals{Name: "b"}, runnerapi.PoolSignals{Name: "f", Occupied: 5, Queued: 2, Blocked: map[runnerapi.BlockedReason]int{"x": 1}})
	woken, _ = b.look(2 * time.Second)
	require.Equal(t, []string{"a"}, woken, "of f only numbers have changed")
	require.Equal(t, 3, b.decision("a").Desired)
	require.Equal(t, 2, b.decision("f").Demand.Queued)
	b.signals.Removals = []runnerapi.Removal{{Pod: runnerapi.PodRef{Namespace: "ns", Name: "b-1", UID: "u1", Pool: "b"}, Proof: "its job is over"}}
	woken, _ = b.look(2 * time.Second)
	require.Equal(t, []string{"b"}, woken)
	require.Equal(t, map[string]string{"u1": "its job is over"}, b.decision("b").Removals)
}

func TestPass_LooksLessOftenWhenNothingAsksForIt(t *testing.T) {
	b := newBench(t, node("n", 10), pool("f", 0, 0, fixed))
	_, next := b.look(0)
	require.Equal(t, 10*time.Second, next)
	b.ask(runnerapi.PoolSignals{Name: "f", Queued: 1})
	_, next = b.look(0)
	require.Equal(t, 2*time.Second, next)

	b = newBench(t, node("n", 10), pool("a", 0, 9, had(5, time.Time{}), func(p *v1alpha1.RunnerPool) {
		p.Spec.Autoscaling.Stabilization = &metav1.Duration{Duration: 700 * time.Millisecond}
	}))
	b.ask(runnerapi.PoolSignals{Name: "a"})
	_, next = b.look(0)
	require.Equal(t, 700*time.Millisecond, next, "a step down may be due sooner")
	_, next = b.look(650 * time.Millisecond)
	require.Equal(t, 200*time.Millisecond, next, "but there is a pause")
}

// POOL-8: whatever cannot be read, the number stays, its pool says why, and only those that it concerns do.
func TestPass_POOL8_WhatCannotBeReadLeavesTheNumber(t *testing.T) {
	inVM := func(p *v1alpha1.RunnerPool) { p.Spec.Template.RuntimeClassName = ptr.To("kata") }
	for name, c := range map[string]struct {
		fail  func(*bench)
		blind map[string]string
	}{
		"the server": {func(b *bench) { b.down = errors.New("asking the server: refused") },
			map[string]string{"a": "asking the server: refused", "vm": "asking the server: refused"}},
		"pools": {func(b *bench) { b.fail["RunnerPool"] = errors.New("no cache") },
			map[string]string{"a": "listing pools: no cache", "vm": "listing pools: no cache"}},
		"nodes": {func(b *bench) { b.fail["Node"] = errors.New("no cache") },
			map[string]string{"a": "listing nodes: no cache", "vm": "listing nodes: no cache"}},
		"pods, of which some are elsewhere": {func(b *bench) {
			var n corev1.Node
			require.NoError(b, b.Get(b.Context(), types.NamespacedName{Name: "n"}, &n))
			n.Spec.Unschedulable = true
			require.NoError(b, b.Update(b.Context(), &n))
			b.fail["Pod"] = errors.New("no cache")
		}, map[string]string{"a": "listing runner pods: no cache", "vm": "listing runner pods: no cache"}},
		"a runtime class": {func(b *bench) {
			require.NoError(b, b.Delete(b.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}}))
		}, map[string]string{"a": "", "vm": `reading the runtime class kata: runtimeclasses.node.k8s.io "kata" not found`}},
		"a template": {func(b *bench) {
			var p v1alpha1.RunnerPool
			require.NoError(b, b.Get(b.Context(), types.NamespacedName{Namespace: "ns", Name: "vm"}, &p))
			p.Spec.Template.Image = ""
			require.NoError(b, b.Update(b.Context(), &p))
		}, map[string]string{"a": "", "vm": "reading where pods of vm may run: spec.template.image is empty: set the runner's image"}},
		"one pool's signal": {func(b *bench) { b.ask(runnerapi.PoolSignals{Name: "a", Queued: 9}) },
			map[string]string{"a": "", "vm": "the server's response does not include this pool"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, node("n", 100), pool("a", 0, 50), pool("vm", 0, 50, inVM), pool("f", 0, 0, fixed),
				&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata"})
			b.ask(runnerapi.PoolSignals{Name: "a", Queued: 5}, runnerapi.PoolSignals{Name: "vm", Queued: 5}, runnerapi.PoolSignals{Name: "f"})
			b.look(0)
			b.ask(runnerapi.PoolSignals{Name: "a", Queued: 9}, runnerapi.PoolSignals{Name: "vm", Queued: 9}, runnerapi.PoolSignals{Name: "f"})
			c.fail(b)
			woken, next := b.look(2 * time.Second)
			require.Equal(t, 2*time.Second, next)
			for pool, blind := range c.blind {
				require.Contains(t, woken, pool)
				d := b.decision(pool)
				require.Equal(t, blind, d.Blind)
				require.True(t, d.Decided)
				if blind == "" {
					require.Equal(t, 9, d.Desired)
				} else {
					require.Equal(t, 5, d.Desired, pool)
				}
			}
			require.Empty(t, b.decision("f").Blind, "it does not autoscale")
			woken, _ = b.look(2 * time.Second)
			require.Empty(t, woken, "once is enough")
		})
	}
}

// POOL-8: no signals, or old ones, say nothing of removals and of demand either.
func TestPass_POOL8_OldSignalsSayNothing(t *testing.T) {
	b := newBench(t, node("n", 10), pool("f", 0, 0, fixed))
	b.ask(runnerapi.PoolSignals{Name: "f", Queued: 1})
	b.signals.Removals = []runnerapi.Removal{{Pod: runnerapi.PodRef{Namespace: "ns", Name: "f-1", UID: "u1", Pool: "f"}, Proof: "over"}}
	b.look(0)
	require.NotNil(t, b.decision("f").Demand)
	require.NotEmpty(t, b.decision("f").Removals)
	b.now = b.now.Add(-time.Second) // the clock of another replica
	b.look(0)
	require.Nil(t, b.decision("f").Demand)
	require.Empty(t, b.decision("f").Removals)
	b.look(time.Millisecond)
	require.NotNil(t, b.decision("f").Demand, "that clock is followed from then on")
	b.down = errors.New("down")
	b.look(0)
	require.Nil(t, b.decision("f").Demand)
	require.Empty(t, b.decision("f").Removals)
}

func TestPass_ANewLeaderBeginsFromTheStatus(t *testing.T) {
	b := newBench(t, node("n", 100), pool("a", 1, 50, had(20, t0.Add(-time.Minute))), pool("new", 0, 50))
	b.down = errors.New("not yet up")
	b.look(0)
	require.Equal(t, runnerpool.Decision{Desired: 20, Decided: true, LastScaleDown: t0.Add(-time.Minute).Local(), Blind: "not yet up", BlindSince: t0}, b.decision("a"))
	require.Equal(t, runnerpool.Decision{Blind: "not yet up", BlindSince: t0}, b.decision("new"))
	b.down = nil
	b.ask(runnerapi.PoolSignals{Name: "a"}, runnerapi.PoolSignals{Name: "new"})
	for range 23 {
		b.look(10 * time.Second)
		require.Equal(t, 20, b.decision("a").Desired, "at %s", b.now)
	}
	b.look(10 * time.Second) // the cooldown began a minute before, five minutes ago
	require.Equal(t, 1, b.decision("a").Desired)
	require.Equal(t, b.now, b.decision("a").LastScaleDown)

	b = newBench(t, node("n", 100), pool("a", 1, 50, fixed, had(20, time.Time{})))
	b.look(0)
	var p v1alpha1.RunnerPool
	require.NoError(t, b.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "a"}, &p))
	p.Spec.Autoscaling = pool("a", 1, 50).Spec.Autoscaling
	require.NoError(t, b.Update(t.Context(), &p))
	b.ask(runnerapi.PoolSignals{Name: "a", Queued: 3})
	b.look(time.Second)
	require.Equal(t, 4, b.decision("a").Desired, "from spec.replicas, not from an older status")
}

// A pool that was deleted and created again between two passes, as by kubectl replace --force, starts without history.
func TestPass_ANameUsedAgainHasNoPast(t *testing.T) {
	uid := func(uid types.UID) func(*v1alpha1.RunnerPool) { return func(p *v1alpha1.RunnerPool) { p.UID = uid } }
	b := newBench(t, node("n", 100), pool("a", 1, 50, uid("first")))
	b.ask(runnerapi.PoolSignals{Name: "a", Queued: 29})
	b.look(0)
	require.Equal(t, 30, b.decision("a").Desired)
	require.Equal(t, types.UID("first"), b.decision("a").Pool)
	require.NoError(t, b.Delete(t.Context(), pool("a", 1, 50)))
	require.NoError(t, b.Create(t.Context(), pool("a", 1, 50, uid("second"))))
	b.ask(runnerapi.PoolSignals{Name: "a"})
	woken, _ := b.look(time.Second)
	require.Equal(t, []string{"a"}, woken)
	require.Equal(t, runnerpool.Decision{Pool: "second", Desired: 1, Decided: true, Demand: &runnerpool.Demand{}}, b.decision("a"))

	b.down = errors.New("down")
	b.look(time.Second)
	since := b.now
	b.look(time.Second)
	require.Equal(t, since, b.decision("a").BlindSince, "since when nothing is seen, and not since the last look")
	b.fail["RunnerPool"] = errors.New("no cache")
	b.look(time.Second)
	require.Equal(t, since, b.decision("a").BlindSince)
	b.down, b.fail["RunnerPool"] = nil, nil
	b.look(time.Second)
	require.Zero(t, b.decision("a").BlindSince)
	b.fail["RunnerPool"] = errors.New("no cache")
	b.look(time.Second)
	require.Equal(t, b.now, b.decision("a").BlindSince)
}

// The shapes and nodes are the scheduler's: the runtime class's overhead counts, and so does who tolerates what.
func TestPass_SCALE1_RoomIsWhatNodesAndShapesSay(t *testing.T) {
	inVM := func(p *v1alpha1.RunnerPool) { p.Spec.Template.RuntimeClassName = ptr.To("kata") }
	kata := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}
	b := newBench(t, node("n", 10), pool("a", 20, 50, inVM), kata)
	b.ask(runnerapi.PoolSignals{Name: "a"})
	b.look(0)
	require.Equal(t, 5, b.decision("a").Desired, "11 CPUs, and two for each")
	require.Contains(t, b.decision("a").Short, "5 of 20")

	cordoned := node("c", 10)
	cordoned.Spec.Unschedulable = true
	busy := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "a"}},
			Spec:       corev1.PodSpec{NodeName: "c"},
		}
	}
	ended := busy("p3")
	ended.Status.Phase = corev1.PodSucceeded
	b = newBench(t, node("n", 10), cordoned, pool("a", 20, 50), busy("p1"), busy("p2"), ended)
	b.ask(runnerapi.PoolSignals{Name: "a", Occupied: 4})
	b.look(0)
	require.Equal(t, 12, b.decision("a").Desired, "ten here, and the two that work elsewhere")
}

// A drained pool takes no room from another that could use it.
func TestPass_SCALE1_ADrainedPoolTakesNoRoom(t *testing.T) {
	for intake, rest := range map[v1alpha1.Intake]int{v1alpha1.IntakeOpen: 5, v1alpha1.IntakePaused: 5, v1alpha1.IntakeDrained: 10} {
		b := newBench(t, node("n", 10), pool("a", 20, 50, func(p *v1alpha1.RunnerPool) { p.Spec.Intake = intake }), pool("b", 20, 50))
		b.ask(runnerapi.PoolSignals{Name: "a"}, runnerapi.PoolSignals{Name: "b"})
		b.look(0)
		require.Equal(t, rest, b.decision("b").Desired, intake)
	}
}

// A Mac runs two virtual machines, whatever CPU and memory it has, and fewer when it says so.
func TestPass_NODE5_AMacHasRoomForItsSlots(t *testing.T) {
	onMacs := func(p *v1alpha1.RunnerPool) { p.Spec.Platform = v1alpha1.PlatformMacOS }
	mac := func(name string, slots int64) *corev1.Node {
		n := node(name, 100)
		n.Labels[corev1.LabelOSStable] = "darwin"
		n.Spec.Taints = []corev1.Taint{{Key: runnerpod.TaintMacOS, Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Allocatable[runnerpod.ResourceMacOSVM] = *resource.NewQuantity(slots, resource.DecimalSI)
		return n
	}
	b := newBench(t, node("linux", 100), mac("m1", 2), mac("m2", 2), mac("m3", 0), pool("a", 20, 50, onMacs), pool("b", 20, 50))
	b.ask(runnerapi.PoolSignals{Name: "a"}, runnerapi.PoolSignals{Name: "b"})
	b.look(0)
	require.Equal(t, 4, b.decision("a").Desired)
	require.Contains(t, b.decision("a").Short, "4 of 20")
	require.Equal(t, 20, b.decision("b").Desired, "Linux has nothing to do with it")
}

func TestPass_POOL3_ATerminatingPoolIsLeftAloneAndItsRemovalsPassOn(t *testing.T) {
	b := newBench(t, node("n", 10), pool("t", 3, 50, had(5, time.Time{}), func(p *v1alpha1.RunnerPool) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: t0}, []string{"x"}
	}))
	b.ask(runnerapi.PoolSignals{Name: "t", Queued: 9})
	b.signals.Removals = []runnerapi.Removal{{Pod: runnerapi.PodRef{Namespace: "ns", UID: "u1", Pool: "t"}, Proof: "over"}}
	b.look(0)
	require.Equal(t, 5, b.decision("t").Desired)
	require.Equal(t, map[string]string{"u1": "over"}, b.decision("t").Removals)
	require.Empty(t, b.series("bullpen_autoscaler_desired_runners"))
}

// series are the values of a metric by the values of its labels.
func (b *bench) series(name string) map[string]float64 {
	families, err := b.registry.Gather()
	require.NoError(b, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

func TestMetrics_TellWhatIsDecidedAndForgetWhatIsGone(t *testing.T) {
	b := newBench(t, node("n", 10), pool("a", 2, 50), pool("f", 0, 0, fixed))
	oldest := t0.Add(-time.Minute)
	b.ask(runnerapi.PoolSignals{Name: "a", Queued: 3, P95LastHour: 20}, runnerapi.PoolSignals{
		Name: "f", Queued: 2, OldestQueued: &oldest, Blocked: map[runnerapi.BlockedReason]int{"x": 1, "y": 4},
	})
	b.look(0)
	require.Equal(t, map[string]float64{"a": 3, "f": 2}, b.series("bullpen_runnerpool_queued_jobs"))
	require.Equal(t, map[string]float64{"a": 0, "f": 5}, b.series("bullpen_runnerpool_blocked_jobs"))
	require.Equal(t, map[string]float64{"f": float64(oldest.Unix())}, b.series("bullpen_runnerpool_oldest_queued_timestamp_seconds"))
	require.Equal(t, map[string]float64{"a": 9}, b.series("bullpen_autoscaler_desired_runners"))
	require.Equal(t, map[string]float64{"a": 22}, b.series("bullpen_autoscaler_target_runners"))
	require.Equal(t, map[string]float64{"a load": 3, "a blocked": 0, "a min_idle": 2, "a head_room": 4, "a cooldown": 0}, b.series("bullpen_autoscaler_granted_runners"))
	require.Equal(t, map[string]float64{"a": 0}, b.series("bullpen_autoscaler_no_data"))
	require.Equal(t, map[string]float64{"up a": 1}, b.series("bullpen_autoscaler_decisions_total"))
	b.down = errors.New("down")
	b.look(time.Second)
	require.Equal(t, map[string]float64{"a": 1}, b.series("bullpen_autoscaler_no_data"))
	require.Empty(t, b.series("bullpen_autoscaler_granted_runners"))
	require.Empty(t, b.series("bullpen_runnerpool_queued_jobs"), "nobody knows")
	require.Equal(t, map[string]float64{"no_data": 1, "decided": 1}, b.series("bullpen_autoscaler_passes_total"))
	require.NoError(t, b.Delete(t.Context(), pool("a", 0, 0)))
	b.look(time.Second)
	require.Empty(t, b.series("bullpen_autoscaler_no_data"))
	require.Empty(t, b.series("bullpen_autoscaler_decisions_total"))
	require.Equal(t, runnerpool.Decision{}, b.decision("a"))
}

// Start passes until it is stopped, at once when a spec has changed.
func TestStart_PassesInTimeAndWhenASpecChanges(t *testing.T) {
	b := newBench(t, node("n", 10), pool("a", 1, 9))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b.nudge = make(chan struct{}, 1) // one of this bubble
		b.wakes = make(chan event.TypedGenericEvent[types.NamespacedName], 1024)
		done := make(chan error, 1)
		go func() { done <- b.Start(ctx) }()
		synctest.Wait()
		require.EqualValues(t, 1, b.asked.Load())
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, b.asked.Load())
		events := b.specEvents()
		old := pool("a", 1, 9)
		changed := pool("a", 1, 9)
		events.OnUpdate(old, changed)
		synctest.Wait()
		require.EqualValues(t, 2, b.asked.Load(), "the status alone has changed")
		changed.Generation = 2
		events.OnUpdate(old, changed)
		synctest.Wait()
		require.EqualValues(t, 3, b.asked.Load())
		events.OnAdd(changed, false)
		events.OnAdd(changed, false) // a pending wake-up is enough: the second does not block
		synctest.Wait()
		require.GreaterOrEqual(t, b.asked.Load(), int64(4))
		cancel()
		require.NoError(t, await.Receive(t, done, "the autoscaler stops"))
	})
	require.True(t, b.NeedLeaderElection())
}

func TestNew_SaysWhatIsMissing(t *testing.T) {
	_, err := newAutoscaler(nil, Options{})
	require.ErrorContains(t, err, "Source, Namespace, Registry and Log are required")
	_, err = newAutoscaler(nil, Options{Source: &bench{}, Namespace: "ns", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	require.Error(t, err)
}
