package runner_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runner"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// bench is a real API server, a GitHub in memory, a clock that a test moves, and the controllers of Runners and of their pods,
// which run when the test says so.
type bench struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	admin     client.WithWatch
	kubelet   client.WithWatch
	github    *registeredtest.GitHub
	recorder  *events.FakeRecorder

	service *registered.Service
	*runner.Reconciler

	mu     sync.Mutex
	ahead  time.Duration
	writes map[string]int                                // by verb and kind, what the controllers wrote
	refuse func(verb string, object client.Object) error // before a write
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, env: kit.Cluster(t), writes: map[string]int{}, recorder: events.NewFakeRecorder(1000)}
	b.namespace = b.env.Namespace(t)
	b.admin, b.kubelet = b.env.Client(t, v1alpha1.AddToScheme), b.env.Kubelet(t)
	b.github = registeredtest.New(b.now)
	t.Cleanup(b.free)
	b.restart()
	return b
}

// restart replaces the controllers by new ones without memory.
func (b *bench) restart() {
	b.t.Helper()
	c := interceptor.NewClient(b.admin, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return b.write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return b.write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return b.write("patch", o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return b.write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return b.write("status", o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
	pod := runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}
	var err error
	b.service, err = registered.New(c, b.admin, b.admin, b.recorder, registered.Options{
		Registrars: b.github, Roster: b.github, Pod: pod, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: b.now,
	})
	require.NoError(b.t, err)
	b.Reconciler, err = runner.New(c, b.admin, b.recorder, runner.Options{Service: b.service, Pod: pod, Log: slog.New(slog.DiscardHandler), Now: b.now})
	require.NoError(b.t, err)
}

func (b *bench) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.ahead)
}

// pass lets time pass for the controllers.
func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead += d
}

func (b *bench) write(verb string, o client.Object, do func() error) error {
	kind := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), "v1alpha1."), "v1.")
	b.mu.Lock()
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(verb+" "+kind, o); err != nil {
			return err
		}
	}
	err := do()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes[verb+" "+kind]++
	return err
}

// written is what the controllers have written since the last time, as "create Pod 1, …".
func (b *bench) written() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.writes
	b.writes = map[string]int{}
	return was
}

// free removes the finalizers that would keep the namespace.
func (b *bench) free() {
	ctx := context.Background()
	var runners v1alpha1.RunnerList
	var pods corev1.PodList
	_ = b.admin.List(ctx, &runners, client.InNamespace(b.namespace))
	_ = b.admin.List(ctx, &pods, client.InNamespace(b.namespace))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"annotations":{"`+runnerpod.AnnotationAllowDeletion+`":"over"}}}`))
	for i := range runners.Items {
		_ = b.admin.Patch(ctx, &runners.Items[i], patch)
	}
	for i := range pods.Items {
		_ = b.admin.Patch(ctx, &pods.Items[i], patch)
	}
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// runner makes a Runner.
func (b *bench) runner(name string, change ...func(*v1alpha1.Runner)) *v1alpha1.Runner {
	b.t.Helper()
	r := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: v1alpha1.RunnerSpec{
			Registration: v1alpha1.Registration{Repository: "acme/app", Labels: []string{"gpu"}},
			Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "runner:1"}}}},
		},
	}
	for _, c := range change {
		c(r)
	}
	require.NoError(b.t, b.admin.Create(b.t.Context(), r))
	return r
}

// owned has a Runner controlled by a RunnerReplicaSet, which exists: the garbage collector would take the Runner otherwise.
func (b *bench) owned() func(*v1alpha1.Runner) {
	b.t.Helper()
	set := &v1alpha1.RunnerReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "set"}}
	set.Spec.Template.Spec.Registration = v1alpha1.Registration{Repository: "acme/app"}
	set.Spec.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "runner", Image: "runner:1"}}
	require.NoError(b.t, b.admin.Create(b.t.Context(), set))
	return func(r *v1alpha1.Runner) {
		r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind("RunnerReplicaSet"))}
	}
}

func static(r *v1alpha1.Runner) { r.Spec.Ephemeral = ptr.To(false) }

func (b *bench) edit(name string, change func(*v1alpha1.Runner)) {
	b.t.Helper()
	r := b.get(name)
	base := r.DeepCopy()
	change(r)
	require.NoError(b.t, b.admin.Patch(b.t.Context(), r, client.MergeFrom(base)))
}

// round runs every controller once, and returns what the one of Runners wants next.
func (b *bench) round(name string) reconcile.Result {
	b.t.Helper()
	request := reconcile.Request{NamespacedName: key(b.namespace, name)}
	result, err := b.Reconcile(b.t.Context(), request)
	if err != nil && !apierrors.IsConflict(err) {
		b.t.Logf("reconciling %s: %v", name, err)
	}
	if _, err = b.service.Reconcile(b.t.Context(), request); err != nil && !apierrors.IsConflict(err) {
		b.t.Logf("reconciling pod %s: %v", name, err)
	}
	return result
}

// settle runs the controllers until they write nothing.
func (b *bench) settle(name string) reconcile.Result {
	b.t.Helper()
	total := b.written()
	for range 20 {
		result := b.round(name)
		now := b.written()
		for what, n := range now {
			total[what] += n
		}
		if len(now) == 0 {
			b.mu.Lock()
			b.writes = total
			b.mu.Unlock()
			return result
		}
	}
	b.t.Fatalf("the controllers do not come to rest: %v", total)
	return reconcile.Result{}
}

func (b *bench) get(name string) *v1alpha1.Runner {
	b.t.Helper()
	var r v1alpha1.Runner
	require.NoError(b.t, b.admin.Get(b.t.Context(), key(b.namespace, name), &r))
	return &r
}

func (b *bench) gone(name string) bool {
	b.t.Helper()
	var r v1alpha1.Runner
	err := b.admin.Get(b.t.Context(), key(b.namespace, name), &r)
	return apierrors.IsNotFound(err)
}

func (b *bench) condition(name, kind string) *metav1.Condition {
	b.t.Helper()
	r := b.get(name)
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == kind {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}

// pod returns the pod of that name; nil for none.
func (b *bench) pod(name string) *corev1.Pod {
	b.t.Helper()
	var p corev1.Pod
	err := b.admin.Get(b.t.Context(), key(b.namespace, name), &p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return &p
}

func (b *bench) secret(name string) *corev1.Secret {
	b.t.Helper()
	var s corev1.Secret
	err := b.admin.Get(b.t.Context(), key(b.namespace, registered.SecretName(name)), &s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(b.t, err)
	return &s
}

// report writes a pod's status as a kubelet would.
func (b *bench) report(name string, phase corev1.PodPhase, state corev1.ContainerState, ready bool) {
	b.t.Helper()
	require.NoError(b.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes it too
		pod := b.pod(name)
		require.NotNil(b.t, pod, "pod %s is gone", name)
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: runnerpod.ContainerRunner, Image: "x", Ready: ready, State: state}}
		is := corev1.ConditionFalse
		if ready {
			is = corev1.ConditionTrue
		}
		conditions := pod.Status.Conditions[:0:0]
		for _, c := range pod.Status.Conditions {
			if c.Type != corev1.ContainersReady {
				conditions = append(conditions, c)
			}
		}
		pod.Status.Conditions = append(conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: is, LastTransitionTime: metav1.NewTime(b.now())})
		return b.kubelet.Status().Update(b.t.Context(), pod)
	}))
}

func (b *bench) running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(b.now().Add(-2 * time.Second))}}
}

func (b *bench) makeIdle(name string) { b.report(name, corev1.PodRunning, b.running(), true) }

// makeBusy shows the sign of work: the runner was ready, and is not.
func (b *bench) makeBusy(name string) { b.report(name, corev1.PodRunning, b.running(), false) }

func (b *bench) finish(name string, code int32) {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	b.report(name, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Completed", FinishedAt: metav1.NewTime(b.now()),
	}}, false)
}

// idle makes a Runner whose runner waits for a job and is known to GitHub.
func (b *bench) idle(name string, change ...func(*v1alpha1.Runner)) *v1alpha1.Runner {
	b.t.Helper()
	b.runner(name, change...)
	b.settle(name)
	b.makeIdle(name)
	r := b.get(name)
	if registered.Ephemeral(&r.Spec) {
		b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Online = true })
	} else {
		b.github.Put(registeredtest.Runner{Name: r.Status.RunnerName, Online: true})
	}
	b.settle(name)
	r = b.get(name)
	require.Equal(b.t, "idle", r.Status.Stage, r.Status.Message)
	return r
}

func (b *bench) delete(object client.Object) {
	b.t.Helper()
	require.NoError(b.t, client.IgnoreNotFound(b.admin.Delete(b.t.Context(), object)))
}

// events that were written since the last time.
func (b *bench) events() []string {
	var all []string
	for {
		select {
		case e := <-b.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}
