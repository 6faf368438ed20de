package pool

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// BenchmarkReplacement measures what one event of a pod costs the controller, in a pool of 5,000 and in one of 50: the
// event itself, the pass that it starts, and the removals and creations that follow. The API server and the server
// answer at once and cost nothing. P9 in test/bench holds the ratio to its budget.
func BenchmarkReplacement(b *testing.B) {
	const rounds, replacements = 50, 50
	small, large := newMill(b, 50), newMill(b, 5000)
	var ratios, perSmall, perLarge []float64
	for b.Loop() {
		for range rounds { // by turns: whatever else the machine does meets both
			ns, nl := small.grind(replacements), large.grind(replacements)
			ratios, perSmall, perLarge = append(ratios, nl/ns), append(perSmall, ns), append(perLarge, nl)
		}
	}
	for _, samples := range [][]float64{ratios, perSmall, perLarge} {
		slices.Sort(samples)
	}
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ratios[len(ratios)/4], "ratio-q1")
	b.ReportMetric(ratios[len(ratios)*3/4], "ratio-q3")
	b.ReportMetric(float64(len(ratios)), "rounds")
	b.ReportMetric(perSmall[len(perSmall)/2], "ns/event-of-50")
	b.ReportMetric(perLarge[len(perLarge)/2], "ns/event-of-5000")
}

// The benchmark goes on working: tests run more often than benchmarks.
func TestReplacement_TheMillGrinds(t *testing.T) {
	m := newMill(t, 5)
	require.Positive(t, m.grind(10))
	require.Len(t, m.pods, 5)
}

// mill is a pool in which one runner after another finishes and is replaced.
type mill struct {
	*Reconciler
	tb     testing.TB
	pods   []*corev1.Pod // oldest first
	events handler.TypedEventHandler[*corev1.Pod, reconcile.Request]
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
	api    *instantAPI
	count  int // events
}

func newMill(b testing.TB, size int) *mill {
	b.Helper()
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux"}, Replicas: ptr.To(int32(size)), Template: v1alpha1.RunnerTemplate{Image: "runner:1"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
		},
	}
	controllerutil.AddFinalizer(pool, runnerpod.FinalizerPoolDrain)
	server := &scriptedServer{verdict: lifecycle.Granted}
	options, err := Options{
		Fence: server, Reporter: server, Pod: runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return t0 }, Workers: 1,
	}.withDefaults()
	require.NoError(b, err)
	m := &mill{tb: b, api: &instantAPI{pool: pool}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	m.Reconciler, err = newReconciler(m.api, m.api, &events.FakeRecorder{}, options)
	require.NoError(b, err)
	m.events = m.podEvents()
	b.Cleanup(m.queue.ShutDown)
	b.Cleanup(m.removals.queue.ShutDown)
	m.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pool)})
	m.settle()
	require.Len(b, m.pods, size)
	return m
}

// grind has n runners finish and be replaced, and returns the nanoseconds of processor time that an event cost.
func (m *mill) grind(n int) float64 {
	m.count = 0
	start := processorTime(m.tb)
	for range n {
		pod := m.pods[0].DeepCopy()
		m.pods = m.pods[1:]
		terminal(pod)
		m.events.Update(context.Background(), event.TypedUpdateEvent[*corev1.Pod]{ObjectNew: pod}, m.queue)
		m.settle()
		m.events.Delete(context.Background(), event.TypedDeleteEvent[*corev1.Pod]{Object: pod}, m.queue)
		m.settle()
		m.count += 2
	}
	took := processorTime(m.tb) - start
	require.Equal(m.tb, 3*n, m.count, "finished, gone, and its replacement seen")
	return float64(took.Nanoseconds()) / float64(m.count)
}

// processorTime is what this process has used so far. Unlike the time on the clock it does not count when others run.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var now unix.Timespec
	require.NoError(tb, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now))
	return time.Duration(now.Nano())
}

// settle runs passes and removals, and shows what was created, until nothing is left to do.
func (m *mill) settle() {
	ctx := context.Background()
	for {
		switch {
		case m.queue.Len() > 0:
			request, _ := m.queue.Get()
			result, err := m.Reconcile(ctx, request)
			require.NoError(m.tb, err)
			m.queue.Done(request)
			if result.RequeueAfter == time.Millisecond { // there is more to create
				m.queue.Add(request)
			}
		case m.removals.queue.Len() > 0:
			m.removals.next(ctx)
		case len(m.wake) > 0:
			m.queue.Add(reconcile.Request{NamespacedName: (<-m.wake).Object}) // bounded: its length is not zero
		case len(m.api.made) > 0:
			pod := m.api.made[0]
			m.api.made = m.api.made[1:]
			m.pods = append(m.pods, pod)
			m.count++
			m.events.Create(ctx, event.TypedCreateEvent[*corev1.Pod]{Object: pod}, m.queue)
		default:
			return
		}
	}
}

// instantAPI is an API server that accepts everything at once. made holds what the watch would show of a new pod, which is idle at once.
type instantAPI struct {
	client.Client
	pool    *v1alpha1.RunnerPool
	made    []*corev1.Pod
	created int
}

func (a *instantAPI) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	a.pool.DeepCopyInto(object.(*v1alpha1.RunnerPool))
	return nil
}

func (a *instantAPI) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if pools, ok := list.(*v1alpha1.RunnerPoolList); ok {
		pools.Items = []v1alpha1.RunnerPool{*a.pool.DeepCopy()}
	}
	return nil // there is nothing else
}

func (a *instantAPI) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil
	}
	a.created++
	pod.UID = types.UID(fmt.Sprintf("uid-%d", a.created))
	shown := idlePod()
	shown.Name, shown.UID, shown.Labels = pod.Name, pod.UID, pod.Labels
	a.made = append(a.made, shown)
	return nil
}

func (a *instantAPI) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }

func (a *instantAPI) Status() client.SubResourceWriter { return acceptStatus{} }

type acceptStatus struct{ client.SubResourceWriter }

func (acceptStatus) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return nil
}
