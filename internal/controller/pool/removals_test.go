package pool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// scriptedServer answers as a test says, and records the reports that it receives.
type scriptedServer struct {
	mu       sync.Mutex
	verdict  lifecycle.Verdict
	asked    int
	onAsk    func()
	fail     int // the number of reports that fail
	reported []string
	onReport func(runnerapi.PodStopped)
}

func (s *scriptedServer) Ask(_ context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.onAsk != nil {
		s.onAsk()
	}
	answers := make([]lifecycle.Answer, len(runners))
	for i := range answers {
		answers[i].Verdict = s.verdict
	}
	return answers
}

func (s *scriptedServer) ReportStopped(_ context.Context, stopped runnerapi.PodStopped) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return errors.New("no database")
	}
	if s.onReport != nil {
		s.onReport(stopped)
	}
	s.reported = append(s.reported, stopped.Pod.Name)
	return nil
}

// shop is a reconciler on a real API server without a cache: a test tells it what to see.
type shop struct {
	t      *testing.T
	admin  client.WithWatch
	server *scriptedServer
	pool   *v1alpha1.RunnerPool
	state  *poolState
	*Reconciler
}

func newShop(t *testing.T, funcs interceptor.Funcs) *shop {
	t.Helper()
	env := kit.Cluster(t)
	s := &shop{t: t, admin: env.Client(t, v1alpha1.AddToScheme), server: &scriptedServer{verdict: lifecycle.Granted}}
	s.pool = &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "pool"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"mine"}, Template: v1alpha1.RunnerTemplate{Image: "runner:1"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
		},
	}
	require.NoError(t, s.admin.Create(t.Context(), s.pool))
	options, err := Options{
		Fence: s.server, Reporter: s.server, Pod: runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"},
		Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}.withDefaults()
	require.NoError(t, err)
	s.Reconciler, err = newReconciler(interceptor.NewClient(s.admin, funcs), s.admin, events.NewFakeRecorder(1000), options)
	require.NoError(t, err)
	s.state = s.tracker.pool(client.ObjectKeyFromObject(s.pool))
	return s
}

// run starts the removals for as long as the test lasts.
func (s *shop) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.removals.Start(ctx) })
	s.t.Cleanup(func() {
		cancel()
		await.Return(s.t, wait.Wait, "the removals end")
	})
}

// runner makes one, seen as it is now.
func (s *shop) runner(change ...func(*corev1.Pod)) podView {
	s.t.Helper()
	name := runnerpod.Name(s.pool.Name, runnerpod.NewSuffix())
	_, result, err := createRunner(s.t.Context(), s.client, s.pool, s.options.Pod, name)
	require.NoError(s.t, err)
	require.Equal(s.t, created, result)
	require.Eventually(s.t, func() bool { // the scheduler has written its condition
		return podsigns.Condition(s.get(name), corev1.PodScheduled) != nil
	}, 90*time.Second, 5*time.Millisecond)
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // and writes it again when it has tried again
		pod := s.get(name)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = idlePod().Status.ContainerStatuses
		for _, c := range change {
			c(pod)
		}
		return s.admin.Status().Update(s.t.Context(), pod)
	}))
	return observe(s.get(name))
}

func terminal(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].State = ended(0)
		p.Status.ContainerStatuses[i].Ready = false
	}
}

func (s *shop) get(name string) *corev1.Pod {
	s.t.Helper()
	var pod corev1.Pod
	require.NoError(s.t, s.admin.Get(s.t.Context(), types.NamespacedName{Namespace: s.pool.Namespace, Name: name}, &pod))
	return &pod
}

func (s *shop) exists(object client.Object, name string) bool {
	s.t.Helper()
	err := s.admin.Get(s.t.Context(), types.NamespacedName{Namespace: s.pool.Namespace, Name: name}, object)
	require.NoError(s.t, client.IgnoreNotFound(err))
	return err == nil && object.GetDeletionTimestamp() == nil
}

func TestRemove_EXCL2_NothingButAGrantConfirmedForAnUnchangedPodDeletes(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	for _, c := range []struct {
		name    string
		verdict lifecycle.Verdict
		grant   func(podView) removal.Grant
		view    func(*podView)
		ready   bool
		during  func(podView) // while the fence is asked again
		err     error
		stays   bool
	}{
		{name: "granted", verdict: lifecycle.Granted},
		{name: "no grant", verdict: lifecycle.Granted, grant: func(podView) removal.Grant { return removal.Grant{} }, err: lifecycle.ErrNoGrant, stays: true},
		{name: "a grant for another UID", verdict: lifecycle.Granted, grant: func(podView) removal.Grant { return removal.Grant{UID: "other"} }, err: lifecycle.ErrNoGrant, stays: true},
		{name: "EXCL-3 the second question is not answered", verdict: lifecycle.Unknown, err: lifecycle.ErrNotNow, stays: true},
		{name: "busy at the second question", verdict: lifecycle.Busy, err: lifecycle.ErrNotNow, stays: true},
		{name: "EXCL-4 a sign of work", verdict: lifecycle.Granted, view: func(v *podView) { v.signs.Owner = "octo" }, err: lifecycle.ErrVetoed, stays: true},
		{name: "EXCL-4 no longer ready", verdict: lifecycle.Granted, ready: true, view: func(v *podView) { v.ready = false }, err: lifecycle.ErrVetoed, stays: true},
		{name: "changed since it was observed", verdict: lifecycle.Granted, stays: true, during: func(v podView) {
			pod := s.get(v.name)
			pod.Labels[runnerpod.LabelOwner] = "acme"
			require.NoError(t, s.admin.Update(t.Context(), pod))
		}},
		{name: "another pod of that name", verdict: lifecycle.Granted, stays: true,
			view: func(v *podView) { v.uid = "gone" }, grant: func(podView) removal.Grant { return removal.Grant{UID: "gone"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := s.runner()
			g := removal.Grant{UID: v.uid}
			if c.grant != nil {
				g = c.grant(v)
			}
			s.server.verdict, s.server.onAsk = c.verdict, nil
			if c.during != nil {
				s.server.onAsk = func() { c.during(v) }
			}
			seen := v
			if c.view != nil {
				c.view(&seen)
			}
			_, err := s.removals.remover.Remove(t.Context(), seen.pod(c.ready), g)
			switch {
			case c.err != nil:
				require.ErrorIs(t, err, c.err)
			case c.stays:
				require.True(t, apierrors.IsConflict(err), "%v", err)
			default:
				require.NoError(t, err)
				_, err = s.removals.remover.Remove(t.Context(), seen.pod(c.ready), g)
				require.NoError(t, err, "POOL-1: gone already is success")
			}
			require.Equal(t, c.stays, s.exists(&corev1.Pod{}, v.name))
		})
	}
}

func TestRemove_EXCL2_ATerminalPodNeedsNoFence(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	s.server.verdict = lifecycle.Unknown
	v := s.runner(terminal)
	_, err := s.removals.remover.Remove(t.Context(), v.pod(true), removal.Grant{})
	require.NoError(t, err)
	require.Zero(t, s.server.asked)
	require.False(t, s.exists(&corev1.Pod{}, v.name))
}

func TestRemovals_POOL1_AFailureOfEitherIsRetriedAndNeverForgotten(t *testing.T) {
	for _, kind := range []string{"pod", "account"} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			deletes := map[string]int{}
			s := newShop(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				mu.Lock()
				defer mu.Unlock()
				this := "pod"
				if _, isAccount := object.(*corev1.ServiceAccount); isAccount {
					this = "account"
				}
				if deletes[this]++; this == kind && deletes[this] <= 2 {
					return errors.New("connection refused")
				}
				return c.Delete(ctx, object, options...)
			}})
			s.run()
			v := s.runner(terminal)
			s.state.podSeen(v, s.now())
			s.state.accountSeen(v.name, true, s.now())
			w := s.state.plan(wishFor(0), counter(), 10, s.now())
			require.Equal(t, []string{v.name}, w.remove)
			s.removals.add(s.state.key, v.name)
			require.Eventually(t, func() bool {
				return !s.exists(&corev1.Pod{}, v.name) && !s.exists(&corev1.ServiceAccount{}, v.name)
			}, 90*time.Second, 10*time.Millisecond)
			require.Eventually(t, func() bool { m, _ := s.state.copyOf(v.name); return !m.queued && !m.account }, 90*time.Second, time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 3, deletes[kind])
			require.Equal(t, 1, deletes[map[string]string{"pod": "account", "account": "pod"}[kind]], "what is done is not repeated")
			require.Equal(t, []string{v.name}, s.server.reported, "reported once")
		})
	}
}

func TestRemovals_POOL4_NoReportNoDeletion(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	s.run()
	v := s.runner(terminal)
	s.server.fail = 2
	s.server.onReport = func(stopped runnerapi.PodStopped) {
		require.True(t, s.exists(&corev1.Pod{}, v.name), "POOL-4: reported before it is deleted")
		require.Equal(t, v.uid, stopped.Pod.UID)
	}
	s.state.podSeen(v, s.now())
	s.removals.add(s.state.key, v.name)
	require.Eventually(t, func() bool { return !s.exists(&corev1.Pod{}, v.name) }, 90*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{v.name}, s.server.reported)
}

// A crash between the two creations, or the two deletions, leaves a ServiceAccount; it is deleted when no pod can follow any more.
func TestRemovals_POOL1_AServiceAccountWithoutAPodIsFound(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	v := s.runner()
	orphan := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: "pool-orphan00",
		Labels: map[string]string{runnerpod.LabelPool: "pool"}}}
	require.NoError(t, s.admin.Create(t.Context(), orphan))
	for _, name := range []string{orphan.Name, v.name} { // the cache has not shown the second one's pod
		look, after := s.state.accountSeen(name, true, s.now())
		require.True(t, look)
		require.Equal(t, defaultOrphanGrace, after)
	}

	again, err := s.removals.step(t.Context(), s.state, orphan.Name)
	require.NoError(t, err)
	require.Greater(t, again, 30*time.Second, "its pod may be about to be created")
	require.True(t, s.exists(&corev1.ServiceAccount{}, orphan.Name))

	real := s.removals.now
	s.removals.now = func() time.Time { return real().Add(2 * defaultOrphanGrace) }
	for _, name := range []string{orphan.Name, v.name} {
		_, err = s.removals.step(t.Context(), s.state, name)
		require.NoError(t, err)
	}
	require.False(t, s.exists(&corev1.ServiceAccount{}, orphan.Name))
	require.True(t, s.exists(&corev1.ServiceAccount{}, v.name), "it has a pod, whatever the cache says")
}

// POOL-1, POOL-2: a pool that is being deleted does not wait for the age of a ServiceAccount whose pod is gone: a controller
// that was restarted between the two deletions would hold it up for a minute.
func TestRemovals_POOL2_ADrainWaitsForNoServiceAccountWithoutAPod(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	v := s.runner()
	orphan := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: "pool-orphan00",
		Labels: map[string]string{runnerpod.LabelPool: "pool"}}}
	require.NoError(t, s.admin.Create(t.Context(), orphan))
	s.state.accountSeen(orphan.Name, true, s.now())
	todo := s.state.plan(lifecycle.Wish{Terminating: true}, nil, 1, s.now())
	require.Contains(t, todo.remove, orphan.Name, "known before the pool was deleted")
	look, after := s.state.accountSeen(v.name, true, s.now())
	require.True(t, look)
	require.Zero(t, after, "learnt of afterwards")

	for _, name := range []string{orphan.Name, v.name} { // the cache has not shown the second one's pod
		_, err := s.removals.step(t.Context(), s.state, name)
		require.NoError(t, err)
	}
	require.False(t, s.exists(&corev1.ServiceAccount{}, orphan.Name))
	require.True(t, s.exists(&corev1.ServiceAccount{}, v.name), "it has a pod, whatever the cache says")
}

// A creation whose answer is lost is tried again under its own name, and finds itself.
func TestCreateAll_POOL1_ALostAnswerDoublesNothing(t *testing.T) {
	var mu sync.Mutex
	lost := 0
	s := newShop(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		err := c.Create(ctx, object, options...)
		mu.Lock()
		defer mu.Unlock()
		if _, isPod := object.(*corev1.Pod); isPod && err == nil && lost < 2 {
			lost++
			return context.DeadlineExceeded
		}
		return err
	}})
	pods := func() int {
		var list corev1.PodList
		require.NoError(t, s.admin.List(t.Context(), &list, client.InNamespace(s.pool.Namespace)))
		for i := range list.Items {
			s.state.podSeen(observe(&list.Items[i]), s.now())
		}
		return len(list.Items)
	}
	wish := wishOf(s.pool, "hash", Decision{}, nil)
	wish.Desired = 4
	names := func() string { return runnerpod.Name("pool", runnerpod.NewSuffix()) }
	w := s.state.plan(wish, names, 10, s.now())
	require.Error(t, s.createAll(t.Context(), s.pool, s.state, w.create))
	later := s.now().Add(time.Minute)
	w = s.state.plan(wish, names, 10, later)
	require.NoError(t, s.createAll(t.Context(), s.pool, s.state, w.create))
	require.Equal(t, 4, pods())
	wish.TemplateHash = s.get(w.create[0]).Labels[runnerpod.LabelTemplateHash]
	require.Empty(t, s.state.plan(wish, names, 10, later).create)
}

// A pod that is refused leaves no ServiceAccount behind.
func TestCreateAll_POOL1_ARefusedPodTakesItsServiceAccountAlong(t *testing.T) {
	s := newShop(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		if _, isPod := object.(*corev1.Pod); isPod {
			return apierrors.NewForbidden(corev1.Resource("pods"), object.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, object, options...)
	}})
	s.run()
	w := s.state.plan(wishFor(1), func() string { return runnerpod.Name("pool", runnerpod.NewSuffix()) }, 10, s.now())
	require.ErrorContains(t, s.createAll(t.Context(), s.pool, s.state, w.create), "exceeded quota")
	require.Eventually(t, func() bool { return !s.exists(&corev1.ServiceAccount{}, w.create[0]) }, 90*time.Second, 10*time.Millisecond)
	require.Eventually(t, s.state.empty, 90*time.Second, time.Millisecond)
	require.Contains(t, s.state.counts("hash").create, "exceeded quota")
}

// The cache may have missed a pod: a drained pool is released only when an uncached list by label shows none.
func TestReconcile_POOL2_ReleasesOnlyAfterLookingPastTheCache(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	v := s.runner()
	s.pool.Finalizers = []string{runnerpod.FinalizerPoolDrain}
	require.NoError(t, s.admin.Update(t.Context(), s.pool))
	require.NoError(t, s.admin.Delete(t.Context(), s.pool))
	request := reconcile.Request{NamespacedName: s.state.key}
	result, err := s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.NotZero(t, result.RequeueAfter)
	require.True(t, controllerutil.ContainsFinalizer(s.reload(), runnerpod.FinalizerPoolDrain), "POOL-2: %s is still there", v.name)

	require.NoError(t, s.admin.Delete(t.Context(), s.get(v.name), client.GracePeriodSeconds(0)))
	_, err = s.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Nil(t, s.reload())
}

func TestReconcile_POOL2_TheFinalizerComesBeforeTheFirstPod(t *testing.T) {
	var s *shop
	s = newShop(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		require.True(t, controllerutil.ContainsFinalizer(s.reload(), runnerpod.FinalizerPoolDrain), "POOL-2")
		return c.Create(ctx, object, options...)
	}})
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.state.key})
	require.NoError(t, err)
	var pods corev1.PodList
	require.NoError(t, s.admin.List(t.Context(), &pods, client.InNamespace(s.pool.Namespace)))
	require.Len(t, pods.Items, 1)
}

// A template that must not be built stops creations and rolls, and is no reason to remove a runner that serves.
func TestReconcile_NET3_AnUnsafeTemplateIsNotBuilt(t *testing.T) {
	s := newShop(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		err := c.Get(ctx, key, object, options...)
		if pool, ok := object.(*v1alpha1.RunnerPool); ok { // as if the API server had not checked it
			pool.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: runnerpod.VolumeToken, MountPath: "/x"}}
		}
		return err
	}})
	s.state.podSeen(s.runner(), s.now())
	s.pool.Finalizers = []string{runnerpod.FinalizerPoolDrain}
	require.NoError(t, s.admin.Update(t.Context(), s.pool))
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.state.key})
	require.NoError(t, err)
	require.Zero(t, s.server.asked)
	c := meta.FindStatusCondition(s.reload().Status.Conditions, v1alpha1.ConditionProgressing)
	require.Equal(t, reasonInvalidTemplate, c.Reason)
	require.Contains(t, c.Message, "holds the pod's credentials")
}

// P5: what a pool's status costs is bounded in time, however many events its runners have. A number is never older than that, also in a pool in
// which no runner is created any more.
func TestWriteStatus_P5_NumbersAreWrittenEveryTwoSeconds(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	now := t0
	s.options.Now = func() time.Time { return now }
	const minutes = 5
	writes, behind := 0, 0
	before := s.reload()
	for i := range int(minutes * time.Minute / (500 * time.Millisecond)) { // two changes a second
		now = now.Add(500 * time.Millisecond)
		status := *s.state.lastStatus(before).DeepCopy()
		status.Idle = int32(i)
		due, err := s.writeStatus(t.Context(), before, s.state, status)
		require.NoError(t, err)
		behind++
		if due == 0 {
			writes, behind = writes+1, 0
		}
		require.LessOrEqual(t, due, statusNumbers)
		require.Less(t, time.Duration(behind)*500*time.Millisecond, statusNumbers, "kubectl and the console show numbers of then")
	}
	require.LessOrEqual(t, writes, int(minutes*time.Minute/statusNumbers)+1)
	require.LessOrEqual(t, statusNumbers, 2*time.Second)
}

func (s *shop) reload() *v1alpha1.RunnerPool {
	s.t.Helper()
	var pool v1alpha1.RunnerPool
	err := s.admin.Get(s.t.Context(), s.state.key, &pool)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(s.t, err)
	return &pool
}

// The cache may still show a pool that is gone: runners that a controller created for it would serve no pool.
func TestReconcile_POOL2_APoolThatCannotBeHeldGetsNoRunner(t *testing.T) {
	var shown *v1alpha1.RunnerPool
	s := newShop(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if pool, ok := object.(*v1alpha1.RunnerPool); ok {
			shown.DeepCopyInto(pool)
			return nil
		}
		return c.Get(ctx, key, object, options...)
	}})
	shown = s.pool.DeepCopy()
	require.NoError(t, s.admin.Delete(t.Context(), s.pool))
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shown)})
	require.NoError(t, err)
	var pods corev1.PodList
	require.NoError(t, s.admin.List(t.Context(), &pods, client.InNamespace(shown.Namespace)))
	require.Empty(t, pods.Items)
}
