package controller_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	patience = 90 * time.Second // what a controller does by itself takes milliseconds, but the machine may be busy
	interval = 50 * time.Millisecond
)

const controllerUser = "system:serviceaccount:bullpen-system:bullpen-controller"

// bench is a control plane, a controller under its own role, and a stand-in for the server.
type bench struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	admin     client.WithWatch
	kubelet   client.WithWatch
	server    *fakeServer
	stop      func()
	registry  *prometheus.Registry // of the controller that was started last
	// orphanGrace of controllers that are started from now on; 0 for the default.
	orphanGrace time.Duration
	// scaleEvery is the pace of the autoscaler of controllers that are started from now on; 0 for the default.
	scaleEvery time.Duration
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, env: kit.Cluster(t)}
	b.namespace = b.env.Namespace(t)
	b.admin = b.env.Client(t, v1alpha1.AddToScheme)
	b.kubelet = b.env.Kubelet(t)
	b.env.ShippedRoles(t, b.namespace)
	b.server = newFakeServer(t, b.admin)
	b.start()
	t.Cleanup(func() {
		if t.Failed() {
			b.describe()
		}
		b.stop()
		b.freePools()
	})
	return b
}

// describe logs what a failed test left.
func (b *bench) describe() {
	var pools v1alpha1.RunnerPoolList
	var pods corev1.PodList
	_ = b.admin.List(context.Background(), &pools, client.InNamespace(b.namespace))
	_ = b.admin.List(context.Background(), &pods, client.InNamespace(b.namespace))
	for _, pool := range pools.Items {
		status, _ := json.MarshalIndent(pool.Status, "", " ")
		b.t.Logf("pool %s generation %d: %s", pool.Name, pool.Generation, status)
	}
	for _, pod := range pods.Items {
		status, _ := json.Marshal(pod.Status.ContainerStatuses)
		b.t.Logf("pod %s created %s labels %v phase %s deleting %v: %s", pod.Name, pod.CreationTimestamp, pod.Labels, pod.Status.Phase, pod.DeletionTimestamp, status)
	}
	retires, reports := b.server.asked()
	b.t.Logf("the server got %d requests and %d reports", retires, reports)
}

// start runs a controller under the role that is shipped (NET-8), until stop.
func (b *bench) start() {
	options := b.options()
	b.registry = prometheus.NewRegistry()
	options.Registry = b.registry
	b.stop = b.run(options)
}

// gauge is what the controller exports of a pool; -1 for nothing.
func (b *bench) gauge(name, pool string) float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[0].GetValue() == pool {
				return metric.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func (b *bench) options() controller.Options {
	tokenFile := filepath.Join(b.t.TempDir(), "token")
	require.NoError(b.t, os.WriteFile(tokenFile, []byte(fakeToken), 0o600))
	server, err := serverclient.New(serverclient.Options{BaseURL: b.server.http.URL, TokenFile: tokenFile, Timeout: 5 * time.Second})
	require.NoError(b.t, err)
	return controller.Options{
		Config: b.env.As(b.t, controllerUser, "system:serviceaccounts", "system:authenticated"), Namespace: b.namespace, Server: server,
		Pod:         runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		OrphanGrace: b.orphanGrace, ScaleEvery: b.scaleEvery,
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(logWriter(), nil)),
	}
}

func (b *bench) run(options controller.Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx, options) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := await.Result(done, "the controller stops"); err != nil { // require would leave sync.OnceFunc, which panics then
			b.t.Errorf("stopping the controller: %v", err)
		}
	})
}

// candidate is one of several controllers.
type candidate struct {
	stop     func()
	registry *prometheus.Registry
}

func (b *bench) startLeader() candidate {
	options := b.options()
	registry := prometheus.NewRegistry()
	options.Registry, options.LeaderElect, options.LeaseNamespace = registry, true, "bullpen-system"
	c := candidate{registry: registry, stop: b.run(options)}
	b.t.Cleanup(c.stop)
	return c
}

// leaders is 1 if the candidate has created runners.
func (b *bench) leaders(c candidate) int {
	b.t.Helper()
	families, err := c.registry.Gather()
	require.NoError(b.t, err)
	for _, family := range families {
		if family.GetName() == "bullpen_runnerpool_creations_total" {
			return 1
		}
	}
	return 0
}

func (b *bench) restart() {
	b.stop()
	b.start()
}

func logWriter() io.Writer {
	if testing.Verbose() {
		return os.Stderr
	}
	return io.Discard
}

// freePools removes the finalizers that keep the namespace from being deleted after a test.
func (b *bench) freePools() {
	var pools v1alpha1.RunnerPoolList
	require.NoError(b.t, b.admin.List(context.Background(), &pools, client.InNamespace(b.namespace)))
	for i := range pools.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		require.NoError(b.t, client.IgnoreNotFound(b.admin.Patch(context.Background(), &pools.Items[i], patch)))
	}
}

func (b *bench) pool(name string, replicas int32, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	b.t.Helper()
	pool := newPool(b.namespace, name, replicas)
	for _, c := range change {
		c(pool)
	}
	require.NoError(b.t, b.admin.Create(b.t.Context(), pool))
	return pool
}

func newPool(namespace, name string, replicas int32) *v1alpha1.RunnerPool {
	return &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{name + "-label"}, Replicas: ptr.To(replicas),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1"},
		},
	}
}

func (b *bench) scale(pool string, replicas int32) {
	b.t.Helper()
	b.edit(pool, func(p *v1alpha1.RunnerPool) { p.Spec.Replicas = ptr.To(replicas) })
}

func (b *bench) edit(name string, change func(*v1alpha1.RunnerPool)) {
	b.t.Helper()
	pool := b.get(name)
	base := pool.DeepCopy()
	change(pool)
	require.NoError(b.t, b.admin.Patch(b.t.Context(), pool, client.MergeFrom(base)))
}

func (b *bench) get(name string) *v1alpha1.RunnerPool {
	b.t.Helper()
	var pool v1alpha1.RunnerPool
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: name}, &pool))
	return &pool
}

func (b *bench) poolGone(name string) bool {
	var pool v1alpha1.RunnerPool
	return apierrors.IsNotFound(b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: name}, &pool))
}

// pods lists a pool's pods by name.
func (b *bench) pods(pool string) []corev1.Pod {
	b.t.Helper()
	var pods corev1.PodList
	require.NoError(b.t, b.admin.List(b.t.Context(), &pods, client.InNamespace(b.namespace), client.MatchingLabels{runnerpod.LabelPool: pool}))
	sort.Slice(pods.Items, func(i, j int) bool { return pods.Items[i].Name < pods.Items[j].Name })
	return pods.Items
}

func (b *bench) podNames(pool string) []string {
	names := []string{}
	for _, pod := range b.pods(pool) {
		names = append(names, pod.Name)
	}
	return names
}

func (b *bench) accountNames(pool string) []string {
	b.t.Helper()
	var accounts corev1.ServiceAccountList
	require.NoError(b.t, b.admin.List(b.t.Context(), &accounts, client.InNamespace(b.namespace), client.MatchingLabels{runnerpod.LabelPool: pool}))
	names := []string{}
	for _, account := range accounts.Items {
		names = append(names, account.Name)
	}
	sort.Strings(names)
	return names
}

// eventually waits for what a controller does by itself.
func (b *bench) eventually(what string, condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, interval, what)
}

// havePods waits until the pool has exactly n pods that have not ended, and returns them.
func (b *bench) havePods(pool string, n int) []corev1.Pod {
	b.t.Helper()
	var live []corev1.Pod
	b.eventually("pods of "+pool, func() bool {
		live = nil
		for _, pod := range b.pods(pool) {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				live = append(live, pod)
			}
		}
		return len(live) == n
	})
	return live
}

// report writes a pod's status as a kubelet would.
func (b *bench) report(name string, phase corev1.PodPhase, poller, runner corev1.ContainerState, ready bool) {
	b.t.Helper()
	require.NoError(b.t, b.tryReport(name, phase, poller, runner, ready))
}

// tryReport is report for a pod that may be gone.
func (b *bench) tryReport(name string, phase corev1.PodPhase, poller, runner corev1.ContainerState, ready bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes it too
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
		if err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(&pod), &pod); err != nil {
			return err
		}
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: runnerpod.ContainerPoller, Image: "x", Ready: poller.Running != nil, State: poller},
			{Name: runnerpod.ContainerRunner, Image: "x", Ready: ready, State: runner},
		}
		return b.kubelet.Status().Update(b.t.Context(), &pod)
	})
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

func exited(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: metav1.Now()}}
}

func (b *bench) makeIdle(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.report(name, corev1.PodRunning, running(), running(), true)
	}
}

// makeBusy claims the pod at the server and shows its poller as ended, as a dispatched pod does.
func (b *bench) makeBusy(name string) {
	b.t.Helper()
	b.server.claim(b.uid(name), fleet.ClaimExecuting)
	b.report(name, corev1.PodRunning, exited(0), running(), false)
}

// own writes the owner label on a busy pod, as the server does before the runner starts.
func (b *bench) own(name string) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+runnerpod.LabelOwner+`":"acme"}}}`))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	require.NoError(b.t, b.admin.Patch(b.t.Context(), pod, patch))
}

func (b *bench) finish(name string) {
	b.t.Helper()
	b.server.claim(b.uid(name), fleet.ClaimSpent)
	b.report(name, corev1.PodSucceeded, exited(0), exited(0), false)
}

func (b *bench) uid(name string) string {
	b.t.Helper()
	var pod corev1.Pod
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: name}, &pod))
	return string(pod.UID)
}

func (b *bench) condition(pool, kind string) *metav1.Condition {
	conditions := b.get(pool).Status.Conditions
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}
