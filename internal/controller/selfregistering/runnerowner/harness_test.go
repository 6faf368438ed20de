package runnerowner_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runner"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerdeployment"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerreplicaset"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerset"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	patience = 60 * time.Second // what a controller does by itself takes milliseconds, but the machine may be busy
	interval = 50 * time.Millisecond
	owner    = "own"
)

// bench is a control plane with the controllers of self-registering runners, a GitHub in memory, and a kubelet.
type bench struct {
	t         *testing.T
	kind      kind
	env       *kit.Env
	namespace string
	admin     client.WithWatch
	kubelet   client.WithWatch
	github    *registeredtest.GitHub
	ahead     atomic.Int64 // how far the controllers' clock is ahead
	guard     atomic.Bool  // deletions of pods are refused
	most      int          // StatefulSets
	agent     string       // the image of the controllers' version; empty for agent:1
	registry  *prometheus.Registry
	stop      func()

	mu   sync.Mutex
	busy map[string]bool // pods that do not stop when they are asked to
}

func newBench(t *testing.T, k kind) *bench {
	t.Helper()
	b := &bench{t: t, kind: k, env: kit.Cluster(t), busy: map[string]bool{}}
	b.namespace = b.env.Namespace(t)
	b.admin, b.kubelet = b.env.Client(t, v1alpha1.AddToScheme), b.env.Kubelet(t)
	theNode.Do(b.registerNode)
	b.github = registeredtest.New(b.now)
	b.start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.runKubelet(ctx)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			b.describe()
		}
		b.stop()
		cancel()
		await.Receive(t, done, "the stand-in stops")
		b.free()
	})
	return b
}

// theNode exists for all tests, and outlives the test that made it. A node of each test's own would be deleted with it, and the runners
// that the scheduler has bound to it for other tests would be lost: GitHub is asked about those, and no hold delays their replacement.
var theNode sync.Once

// registerNode creates the node and renews its heartbeat for as long as the tests run: no pod is scheduled to a node that is silent for
// long.
func (b *bench) registerNode() {
	b.env.RegisterNode(lasting{b.t}, "node", nil)
	nodes := b.env.Kube.CoreV1().Nodes()
	go func() {
		for now := range time.Tick(10 * time.Second) {
			beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Registered","lastHeartbeatTime":%q}]}}`, now.UTC().Format(time.RFC3339))
			_, _ = nodes.Patch(context.Background(), "node", types.StrategicMergePatchType, []byte(beat), metav1.PatchOptions{}, "status")
		}
	}()
}

// lasting is a test whose end takes nothing along.
type lasting struct{ testing.TB }

// Cleanup is never.
func (lasting) Cleanup(func()) {}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

// pass lets time pass for the controllers, and has them look.
func (b *bench) pass(d time.Duration) {
	b.ahead.Add(int64(d))
	b.poke()
}

// poke has a pass made for the owner.
func (b *bench) poke() {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"poked":"%d"}}}`, time.Now().UnixNano())
	require.NoError(b.t, b.admin.Patch(b.t.Context(), b.kind.empty(b), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// touch triggers a pass over a pod.
func (b *bench) touch(pod string) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"poked":"%d"}}}`, time.Now().UnixNano())
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: pod}}
	require.NoError(b.t, b.admin.Patch(b.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (b *bench) start() {
	scheme := runtime.NewScheme()
	require.NoError(b.t, clientgoscheme.AddToScheme(scheme))
	require.NoError(b.t, v1alpha1.AddToScheme(scheme))
	log := slog.New(slog.NewTextHandler(logWriter(), nil))
	config := *b.env.Config
	config.QPS = -1
	mgr, err := manager.New(&config, manager.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{b.namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:         {Label: labels.SelectorFromSet(labels.Set{runnerpod.LabelRunner: "true"}), Transform: registered.TrimPod},
				&appsv1.StatefulSet{}: {Label: labels.SelectorFromSet(labels.Set{runnerpod.LabelSelfRegistering: "true"})},
			},
		},
		NewClient:               b.newClient,
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}, &corev1.Secret{}}}},
		Controller:              configOfTests,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(patience),
	})
	require.NoError(b.t, err)
	pod := runnerpod.Options{DispatchURL: "http://server", AgentImage: cmp.Or(b.agent, "agent:1")}
	registry := prometheus.NewRegistry()
	b.registry = registry
	service, err := registered.Setup(mgr, registered.Options{Registrars: b.github, Roster: b.github, Pod: pod, Registry: registry, Log: log, Now: b.now})
	require.NoError(b.t, err)
	require.NoError(b.t, runner.Setup(mgr, runner.Options{Service: service, Pod: pod, Log: log, Now: b.now}))
	require.NoError(b.t, runnerreplicaset.Setup(mgr, runnerreplicaset.Options{Service: service, Pod: pod, Registry: registry, Log: log, Now: b.now}))
	require.NoError(b.t, runnerset.Setup(mgr, runnerset.Options{Service: service, Pod: pod, Most: b.most, Registry: registry, Log: log, Now: b.now}))
	require.NoError(b.t, runnerdeployment.Setup(mgr, runnerdeployment.Options{Pod: pod, Log: log, Now: b.now}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := await.Result(done, "the manager stops"); err != nil { // require would leave sync.OnceFunc, which panics then
			stacks := make([]byte, 4<<20)
			b.t.Errorf("stopping the controllers: %v\n%s", err, stacks[:goruntime.Stack(stacks, true)])
		}
	})
}

// newClient is the controllers' client, with an admission webhook that denies deletions of pods while guard is set.
func (b *bench) newClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.NewWithWatch(config, options)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if _, isPod := object.(*corev1.Pod); isPod && b.guard.Load() {
				return errors.New(`admission webhook "guard.example" denied the request`)
			}
			return c.Delete(ctx, object, options...)
		},
	}), nil
}

var configOfTests = config.Controller{SkipNameValidation: ptr.To(true)}

func (b *bench) restart() {
	b.stop()
	b.start()
}

func logWriter() io.Writer {
	if os.Getenv("VERBOSE") != "" {
		return os.Stderr
	}
	return io.Discard
}

// runKubelet stops the runners that are asked to stop and are not busy, and confirms the deletion of their pods.
func (b *bench) runKubelet(ctx context.Context) {
	for ctx.Err() == nil {
		watch, err := b.kubelet.Watch(ctx, &corev1.PodList{}, client.InNamespace(b.namespace))
		if err != nil {
			continue
		}
		for event := range watch.ResultChan() { // bounded: the watch ends with its context
			if pod, is := event.Object.(*corev1.Pod); is && pod.DeletionTimestamp != nil {
				b.terminate(ctx, pod)
			}
		}
	}
}

func (b *bench) terminate(ctx context.Context, pod *corev1.Pod) {
	b.mu.Lock()
	works := b.busy[pod.Name]
	b.mu.Unlock()
	if works {
		return
	}
	if pod.Status.Phase == corev1.PodRunning {
		_ = b.report(ctx, pod.Name, corev1.PodSucceeded, exited(0), false, time.Now())
	}
	if pod.Spec.NodeName != "" && len(pod.Finalizers) == 0 {
		_ = b.kubelet.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	}
}

// report writes a pod's status as a kubelet would.
func (b *bench) report(ctx context.Context, name string, phase corev1.PodPhase, state corev1.ContainerState, ready bool, since time.Time) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var pod corev1.Pod
		if err := b.admin.Get(ctx, types.NamespacedName{Namespace: b.namespace, Name: name}, &pod); err != nil {
			return err
		}
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: runnerpod.ContainerRunner, Image: "x", Ready: ready, State: state}}
		value := corev1.ConditionFalse
		if ready {
			value = corev1.ConditionTrue
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.ContainersReady })
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.ContainersReady, Status: value, LastTransitionTime: metav1.NewTime(since),
		})
		return b.kubelet.Status().Update(ctx, &pod)
	})
}

func running(since time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now()}}
}

// idle brings runners up, and GitHub to know them.
func (b *bench) idle(pods ...corev1.Pod) {
	b.t.Helper()
	for i := range pods {
		b.up(pods[i])
		b.github.Put(registeredtest.Runner{ID: b.idOf(pods[i]), Name: nameOf(pods[i]), Online: true, Ephemeral: b.ephemeral(pods[i])})
	}
}

// up starts a runner that does not register at GitHub.
func (b *bench) up(pod corev1.Pod, since ...time.Time) {
	b.t.Helper()
	at := append(since, b.now())[0]
	require.NoError(b.t, b.report(b.t.Context(), pod.Name, corev1.PodRunning, running(at.Add(-time.Second)), true, at))
}

func nameOf(pod corev1.Pod) string { return pod.Annotations[runnerpod.AnnotationRunnerName] }

func (b *bench) idOf(pod corev1.Pod) int64 {
	known, _ := b.github.Get(nameOf(pod))
	return known.ID
}

func (b *bench) ephemeral(pod corev1.Pod) bool { return pod.Labels[runnerpod.LabelEphemeral] == "true" }

// work gives a runner a job: GitHub knows that at once, and it shows it.
func (b *bench) work(pods ...corev1.Pod) {
	b.t.Helper()
	for i := range pods {
		b.assign(pods[i])
		require.NoError(b.t, b.report(b.t.Context(), pods[i].Name, corev1.PodRunning, running(b.now().Add(-time.Minute)), false, b.now()))
	}
}

// assign gives a runner a job that only GitHub knows of yet.
func (b *bench) assign(pod corev1.Pod) {
	b.mu.Lock()
	b.busy[pod.Name] = true
	b.mu.Unlock()
	b.github.Change(nameOf(pod), func(r *registeredtest.Runner) { r.Busy = true })
}

// finish ends a runner's job; an ephemeral one ends with it.
func (b *bench) finish(pods ...corev1.Pod) {
	b.t.Helper()
	for i := range pods {
		b.mu.Lock()
		delete(b.busy, pods[i].Name)
		b.mu.Unlock()
		if b.ephemeral(pods[i]) {
			b.github.Drop(nameOf(pods[i]))
			require.NoError(b.t, b.report(b.t.Context(), pods[i].Name, corev1.PodSucceeded, exited(0), false, b.now()))
			continue
		}
		b.github.Change(nameOf(pods[i]), func(r *registeredtest.Runner) { r.Busy = false })
		b.up(pods[i])
	}
}

// pods lists the owner's pods that have not ended and are not going, by age and name.
func (b *bench) pods() []corev1.Pod {
	b.t.Helper()
	var list corev1.PodList
	require.NoError(b.t, b.admin.List(b.t.Context(), &list, client.InNamespace(b.namespace), client.MatchingLabels{runnerpod.LabelSelfRegistering: "true"}))
	live := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
	sort.Slice(live, func(i, j int) bool {
		if at := live[i].CreationTimestamp.Compare(live[j].CreationTimestamp.Time); at != 0 {
			return at < 0
		}
		return live[i].Name < live[j].Name
	})
	return live
}

// have waits until there are exactly n live pods, on a node, and returns them.
func (b *bench) have(n int) []corev1.Pod {
	b.t.Helper()
	var live []corev1.Pod
	b.eventually(fmt.Sprintf("%d pods", n), func() bool {
		live = b.pods()
		return len(live) == n && !slices.ContainsFunc(live, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "" && len(pod.Spec.NodeSelector) == 0 })
	})
	return live
}

func (b *bench) exists(pod corev1.Pod) bool {
	var now corev1.Pod
	err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(&pod), &now)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}

func (b *bench) eventually(what string, condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, interval, what)
}

// stays watches for a moment that something does not change, and has passes made meanwhile.
func (b *bench) stays(what string, condition func() bool) {
	b.t.Helper()
	looks := 0
	b.eventually(what, func() bool {
		require.True(b.t, condition(), what)
		if looks++; looks%8 == 0 && !b.ownerGone() {
			b.poke()
		}
		return looks >= 40
	})
}

// counts waits until the owner's status says so.
func (b *bench) counts(what string, says func(v1alpha1.RunnerCounts) bool) {
	b.t.Helper()
	b.eventually(what, func() bool { return says(b.kind.counts(b)) })
}

func (b *bench) condition(kind string) metav1.Condition {
	for _, c := range b.kind.conditions(b) {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

func (b *bench) is(kind string, status metav1.ConditionStatus, reason string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%s %s %s", kind, status, reason), func() bool {
		c := b.condition(kind)
		return c.Status == status && (reason == "" || c.Reason == reason)
	})
}

func (b *bench) ownerGone() bool {
	return apierrors.IsNotFound(b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: owner}, b.kind.empty(b)))
}

// describe logs what a failed test left.
func (b *bench) describe() {
	ctx := context.Background()
	for _, list := range []client.ObjectList{
		&v1alpha1.RunnerReplicaSetList{}, &v1alpha1.RunnerSetList{}, &v1alpha1.RunnerDeploymentList{}, &v1alpha1.RunnerList{}, &appsv1.StatefulSetList{}, &corev1.PodList{},
	} {
		_ = b.admin.List(ctx, list, client.InNamespace(b.namespace))
		text, _ := json.Marshal(list)
		b.t.Logf("%T: %s", list, text)
	}
}

// free removes the finalizers that would keep the namespace after a test.
func (b *bench) free() {
	ctx := context.Background()
	for _, list := range []client.ObjectList{
		&v1alpha1.RunnerDeploymentList{}, &v1alpha1.RunnerReplicaSetList{}, &v1alpha1.RunnerSetList{}, &v1alpha1.RunnerList{}, &corev1.PodList{},
	} {
		require.NoError(b.t, b.admin.List(ctx, list, client.InNamespace(b.namespace)))
		b.each(list, func(object client.Object) {
			_ = b.kubelet.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
}

func (b *bench) each(list client.ObjectList, visit func(client.Object)) {
	switch list := list.(type) {
	case *v1alpha1.RunnerDeploymentList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	case *v1alpha1.RunnerReplicaSetList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	case *v1alpha1.RunnerSetList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	case *v1alpha1.RunnerList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	case *corev1.PodList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	}
}
