package uninstall

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const (
	every  = 30 * time.Millisecond
	limit  = 30 * time.Second
	silent = 300 * time.Millisecond // a controller that says nothing for so long is gone
)

// site is a namespace of runners on a real API server, with the product's admission policies.
type site struct {
	*kit.Env
	t         *testing.T
	namespace string
	system    string
	objects   dynamic.Interface
	out       output
}

// output is written by one goroutine and read by another.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	env := kit.Cluster(t)
	objects, err := dynamic.NewForConfig(env.Config)
	require.NoError(t, err)
	return &site{Env: env, t: t, namespace: env.Namespace(t), system: env.Namespace(t), objects: objects}
}

func (s *site) options() Options {
	return Options{Namespace: s.namespace, SystemNamespace: s.system, Every: every, Patience: silent, Out: &s.out}
}

// start runs the command as an administrator does.
func (s *site) start(o Options) (done chan error, report *Report) {
	done, report = make(chan error, 1), new(Report)
	go func() {
		var err error
		*report, err = Run(await.Context(s.t), s.Config, o)
		done <- err
	}()
	return done, report
}

func (s *site) owner(kind, plural, name, finalizer string) {
	s.t.Helper()
	spec := map[string]any{
		"platform": "linux", "labels": []any{name + "-1cpu"}, "resources": map[string]any{"cpu": "1", "memory": "1Gi"}, "template": map[string]any{"image": "none"},
	}
	if kind != v1alpha1.KindRunnerPool {
		spec = map[string]any{"organization": "acme", "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "runner", "image": "none"}}}}}
	}
	_, err := s.objects.Resource(v1alpha1.GroupVersion.WithResource(plural)).Namespace(s.namespace).Create(s.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bullpen.dev/v1alpha1", "kind": kind, "spec": spec,
		"metadata": map[string]any{"namespace": s.namespace, "name": name, "finalizers": []any{finalizer}},
	}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}

func (s *site) pool(name string) {
	s.t.Helper()
	s.owner(v1alpha1.KindRunnerPool, "runnerpools", name, runnerpod.FinalizerPoolDrain)
}

// finalizersOf a pool; nil: it is gone.
func (s *site) finalizersOf(plural, name string) []string {
	s.t.Helper()
	found, err := s.objects.Resource(v1alpha1.GroupVersion.WithResource(plural)).Namespace(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(s.t, err)
	return found.GetFinalizers()
}

// runner makes a runner's pod, which no node takes, and its ServiceAccount.
func (s *site) runner(name string, change func(*corev1.Pod)) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "linux"}}
	pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{
		ServiceAccountName: name, AutomountServiceAccountToken: ptr.To(false), NodeSelector: map[string]string{"no": "node"},
		Containers: []corev1.Container{{Name: runnerpod.ContainerRunner, Image: "none"}, {Name: runnerpod.ContainerPoller, Image: "none"}},
	}}
	change(pod)
	_, err := s.Kube.CoreV1().ServiceAccounts(s.namespace).Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	pods := s.Kube.CoreV1().Pods(s.namespace)
	_, err = pods.Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	if pod.Status.Phase == "" {
		return
	}
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the scheduler writes the pod's status at the same time
		made, err := pods.Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Status.Phase = pod.Status.Phase
		_, err = pods.UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{})
		return err
	}))
}

func idle(*corev1.Pod) {}

func busy(pod *corev1.Pod) { pod.Labels[runnerpod.LabelOwner] = "acme" }

func ended(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

func selfRegistering(pod *corev1.Pod) {
	delete(pod.Labels, runnerpod.LabelPool)
	pod.Labels[runnerpod.LabelSelfRegistering] = "true"
	pod.Finalizers = []string{runnerpod.FinalizerRegistration}
}

// finish ends a runner as its node does.
func (s *site) finish(name string) {
	s.t.Helper()
	kubelet := s.Kubelet(s.t)
	found, err := s.Kube.CoreV1().Pods(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	require.NoError(s.t, err)
	found.Status.Phase = corev1.PodSucceeded
	require.NoError(s.t, kubelet.Status().Update(s.t.Context(), found))
}

func (s *site) there(name string) bool {
	s.t.Helper()
	_, err := s.Kube.CoreV1().Pods(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(s.t, err)
	}
	return err == nil
}

func (s *site) gone(name string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return !s.there(name) }, limit, every, "%s stays: %s", name, &s.out)
}

func (s *site) says(text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return bytes.Contains([]byte(s.out.String()), []byte(text)) }, limit, every, "%q is not said: %s", text, &s.out)
}

// fence is the server's answer to retirements.
type fence struct {
	site *site
	mu   sync.Mutex
	busy map[string]bool
	fail error
}

func (f *fence) Retire(ctx context.Context, namespace, name, _ string) (adminapi.RetiredRunner, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return adminapi.RetiredRunner{}, f.fail
	}
	if f.busy[name] {
		return adminapi.RetiredRunner{}, &cli.APIError{Status: http.StatusConflict, Sentence: name + " was chosen for a job"}
	}
	pod, err := f.site.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return adminapi.RetiredRunner{}, &cli.APIError{Status: http.StatusNotFound, Sentence: "no runner " + name}
	}
	return adminapi.RetiredRunner{Name: name, UID: string(pod.UID), State: string(fleet.ClaimRetired)}, nil
}

func (f *fence) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// R9: the controller is gone, and its pools with all kinds of runners are not. Idle ones are removed behind the fence, busy ones finish, and the
// pool is removed last.
func TestRun_R9_POOL13_EndsWithoutAController(t *testing.T) {
	s := newSite(t)
	s.pool("linux")
	s.runner("linux-idle", idle)
	s.runner("linux-chosen", idle)
	s.runner("linux-busy", busy)
	s.runner("linux-ended", ended)
	_, err := s.Kube.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "linux-left", Labels: map[string]string{runnerpod.LabelRunner: "true"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	server := &fence{site: s, busy: map[string]bool{"linux-chosen": true}}
	o := s.options()
	o.Server = server
	done, report := s.start(o)
	s.gone("linux-idle")
	s.gone("linux-ended")
	s.says("waiting for runner linux-busy: busy: it has a job for acme")
	s.says("waiting for runner linux-chosen: linux-chosen was chosen for a job")
	require.Empty(t, done)
	require.True(t, s.there("linux-busy") && s.there("linux-chosen"))
	require.Equal(t, []string{runnerpod.FinalizerPoolDrain}, s.finalizersOf("runnerpools", "linux"), "it is held by what is left")

	server.set(func() { server.busy = nil })
	s.gone("linux-chosen")
	require.NotNil(t, s.finalizersOf("runnerpools", "linux"))
	s.finish("linux-busy")
	require.NoError(t, await.Receive(t, done, "the command ends"))
	require.Equal(t, Report{Namespace: s.namespace, Done: true}, *report)
	require.Nil(t, s.finalizersOf("runnerpools", "linux"))
	accounts, err := s.Kube.CoreV1().ServiceAccounts(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: runnerpod.LabelRunner})
	require.NoError(t, err)
	require.Empty(t, accounts.Items)

	again, err := Run(t.Context(), s.Config, s.options())
	require.NoError(t, err, "there is nothing to do")
	require.True(t, again.Done)
}

// While a controller renews its Lease, everything but the deletion of the pools is its own.
func TestRun_R9_POOL13_LeavesTheRestToAControllerThatRuns(t *testing.T) {
	s := newSite(t)
	s.pool("linux")
	s.runner("linux-idle", idle)
	s.runner("linux-ended", ended)
	leases := s.Kube.CoordinationV1().Leases(s.system)
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.system, Name: leaseName}}, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var controller sync.WaitGroup
	controller.Go(func() {
		for tick := time.NewTicker(every); ctx.Err() == nil; {
			lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
			if renewed, err := leases.Update(context.WithoutCancel(ctx), lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	defer await.Return(t, controller.Wait, "the controller ends")
	defer stop()
	o := s.options()
	o.Patience = 3 * time.Second // of a machine that has much to do
	o.WithoutServer = true
	done, _ := s.start(o)
	s.says("waiting for RunnerPool linux: the controller removes its finalizer")
	s.says("waiting for runner linux-idle: the controller removes it")
	require.True(t, s.there("linux-idle") && s.there("linux-ended"))
	require.Empty(t, done)
	stop() // the controller ends, and so does its word
	require.NoError(t, await.Receive(t, done, "the command ends"))
	require.Nil(t, s.finalizersOf("runnerpools", "linux"))
}

// EXCL-3: where nothing reports whether an idle runner was given a job, it stays, until a person says that there is no server.
func TestRun_R9_EXCL3_WithoutAServerAPersonDecides(t *testing.T) {
	s := newSite(t)
	s.pool("linux")
	s.runner("linux-idle", idle)
	report, err := Run(await.Context(t), s.Config, s.options())
	require.ErrorIs(t, err, ErrBlocked)
	require.False(t, report.Done)
	require.Contains(t, report.Left[0].Why, "--without-server")

	o := s.options()
	o.Server = &fence{site: s, fail: errors.New("connection refused")}
	report, err = Run(await.Context(t), s.Config, o)
	require.ErrorIs(t, err, ErrBlocked)
	require.Contains(t, report.Left[0].Why, "connection refused")
	require.True(t, s.there("linux-idle"))
	require.NotNil(t, s.finalizersOf("runnerpools", "linux"))

	o = s.options()
	o.WithoutServer = true
	report, err = Run(await.Context(t), s.Config, o)
	require.NoError(t, err)
	require.True(t, report.Done)
	require.False(t, s.there("linux-idle"))
}

// RUN-2: GitHub knows a self-registering runner, and only a controller asks GitHub. A completed runner is released.
func TestRun_R9_RUN2_RunnersThatRegisterThemselvesNeedAController(t *testing.T) {
	s := newSite(t)
	s.owner(v1alpha1.KindRunner, "runners", "gpu", runnerpod.FinalizerRegistration)
	s.runner("gpu", selfRegistering)
	o := s.options()
	o.WithoutServer = true
	report, err := Run(await.Context(t), s.Config, o)
	require.ErrorIs(t, err, ErrBlocked)
	require.Contains(t, report.Left, Waiting{Object: "runner gpu", Why: needsController, Blocked: true})
	require.True(t, s.there("gpu"))
	require.NotNil(t, s.finalizersOf("runners", "gpu"))

	s.finish("gpu")
	report, err = Run(await.Context(t), s.Config, o)
	require.NoError(t, err)
	require.True(t, report.Done)
	require.False(t, s.there("gpu"))
	require.Nil(t, s.finalizersOf("runners", "gpu"))
}

// Two controllers of one pool would act on what the other has not seen: one that runs in another namespace is not overlooked.
func TestRun_R9_POOL13_AControllerOfAnotherNamespaceIsNotOverlooked(t *testing.T) {
	s := newSite(t)
	s.pool("linux")
	elsewhere := s.Env.Namespace(t)
	_, err := s.Kube.CoordinationV1().Leases(elsewhere).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: leaseName}}, metav1.CreateOptions{})
	require.NoError(t, err)
	o := s.options()
	o.SystemAssumed = true
	_, err = Run(await.Context(t), s.Config, o)
	require.ErrorIs(t, err, ErrOtherNamespace)
	require.NotNil(t, s.finalizersOf("runnerpools", "linux"))
	report, err := Run(await.Context(t), s.Config, s.options())
	require.NoError(t, err, "a person has named it")
	require.True(t, report.Done)
}

func TestRun_R9_AForeignFinalizerIsNamedAndStays(t *testing.T) {
	s := newSite(t)
	s.owner(v1alpha1.KindRunnerPool, "runnerpools", "linux", "example.com/backup")
	report, err := Run(await.Context(t), s.Config, s.options())
	require.ErrorIs(t, err, ErrBlocked)
	require.Contains(t, report.Left[0].Why, "example.com/backup")
	require.Equal(t, []string{"example.com/backup"}, s.finalizersOf("runnerpools", "linux"))
	_, err = s.objects.Resource(v1alpha1.GroupVersion.WithResource("runnerpools")).Namespace(s.namespace).Patch(t.Context(), "linux",
		"application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}
