package runner_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runner"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// manage runs the controllers as they run in production: with caches that hold trimmed pods and no Secret's content, by events,
// and under the role that is shipped (NET-8).
func (b *bench) manage() {
	b.t.Helper()
	b.env.ShippedRoles(b.t, b.namespace)
	ours := labels.SelectorFromSet(labels.Set{runnerpod.LabelRunner: "true"})
	mgr, err := manager.New(b.env.As(b.t, "system:serviceaccount:bullpen-system:bullpen-controller", "system:serviceaccounts", "system:authenticated"), manager.Options{
		Scheme: controller.NewScheme(), Logger: logr.Discard(),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{b.namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: ours, Transform: registered.TrimPod, UnsafeDisableDeepCopy: ptr.To(true)}},
		},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
	})
	require.NoError(b.t, err)
	pod := runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}
	service, err := registered.Setup(mgr, registered.Options{
		Registrars: b.github, Roster: b.github, Pod: pod, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(b.t, err)
	require.NoError(b.t, runner.Setup(mgr, runner.Options{Service: service, Pod: pod, Log: slog.New(slog.DiscardHandler)}))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = mgr.Start(ctx) })
	b.t.Cleanup(func() {
		cancel()
		await.Return(b.t, wait.Wait, "the manager stops")
	})
}

func TestSetup_NET8_ARunnerLivesByEventsUnderTheShippedRole(t *testing.T) {
	b := newBench(t)
	b.manage()
	eventually := func(what string, is func() bool) {
		t.Helper()
		require.Eventually(t, is, 90*time.Second, 20*time.Millisecond, what)
	}
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.For {
			return registration.ErrCredentials
		}
		return nil
	})
	b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: "pat"} })
	eventually("it says that there are no credentials", func() bool {
		c := b.condition("r", v1alpha1.ConditionRegistered)
		return c != nil && c.Reason == "NoCredentials"
	})
	require.Equal(t, 1, b.github.Calls(registeredtest.For))
	b.github.Fault(nil)
	require.NoError(t, b.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "pat"}}))
	eventually("the Secret is seen", func() bool { return b.pod("r") != nil && b.get("r").Status.PodUID != "" })

	b.makeIdle("r")
	r := b.get("r")
	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Online = true })
	eventually("it is idle, and known", func() bool {
		c := b.condition("r", v1alpha1.ConditionRegistered)
		return b.get("r").Status.Stage == "idle" && c.Reason == "Registered"
	})
	b.makeBusy("r")
	eventually("it is busy", func() bool { return b.get("r").Status.Stage == "busy" })
	b.delete(b.get("r"))
	eventually("its removal is blocked", func() bool { return b.condition("r", v1alpha1.ConditionRemovalBlocked) != nil })
	require.Nil(t, b.pod("r").DeletionTimestamp)
	b.github.Drop(r.Status.RunnerName)
	b.finish("r", 0)
	eventually("it is gone", func() bool { return b.gone("r") && b.pod("r") == nil })
	eventually("its Secret goes with it", func() bool { return b.secret("r") == nil })
	require.Len(t, b.github.Minted(), 1)
}
