package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	controllerUser = "system:serviceaccount:bullpen-system:bullpen-controller"
	slowServer     = 100 * time.Millisecond
)

var podOptions = runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}

// startPlane runs a control plane without a scheduler: pods stay pending, and only their creation is measured.
func startPlane(b *testing.B) *kit.Env {
	b.Helper()
	env := kit.Private(b)
	require.NoError(b, env.Plane.StopComponent(b.Context(), controlplane.Scheduler))
	return env
}

// side is one of those that are compared: a namespace, the identity that works in it, and a watch of its pods.
type side struct {
	tb     testing.TB
	env    *kit.Env
	ns     string
	admin  client.Client
	client client.Client // under the controller's own role, so that permissions cost the same for all
	seen   chan podEvent
	onDone func() // called when a pod has finished, by the watch
	stop   []func()
	made   int // objects that need a name of their own
}

// podEvent is what the watch showed of a pod, and when.
type podEvent struct {
	kind watch.EventType
	name string
	done bool
	at   time.Time
}

// create makes what a pool makes of one runner, and nothing else.
func (s *side) create(owner *v1alpha1.RunnerPool, suffix string) {
	pod, account, err := runnerpod.Build(owner, podOptions, suffix)
	if err == nil {
		err = s.client.Create(context.Background(), account)
	}
	if err == nil {
		err = s.client.Create(context.Background(), pod)
	}
	if err != nil {
		s.tb.Errorf("creating a pod: %v", err)
	}
}

// newNamespace makes one that is not cleaned up: thousands of pods are deleted with their control plane.
func newNamespace(b *testing.B, env *kit.Env) string {
	b.Helper()
	made, err := env.Kube.CoreV1().Namespaces().Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}, metav1.CreateOptions{})
	require.NoError(b, err)
	require.Eventually(b, func() bool {
		_, err := env.Kube.CoreV1().ServiceAccounts(made.Name).Get(b.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, time.Minute, 20*time.Millisecond, "it has no default ServiceAccount")
	return made.Name
}

func newSide(b *testing.B, env *kit.Env) *side {
	b.Helper()
	s := &side{tb: b, env: env, ns: newNamespace(b, env), admin: env.Client(b, v1alpha1.AddToScheme), seen: make(chan podEvent, 65536)}
	env.ShippedRoles(b, s.ns)
	config := env.As(b, controllerUser, "system:serviceaccounts", "system:authenticated")
	config.QPS = -1
	s.client = env.ClientAs(b, config, v1alpha1.AddToScheme)
	s.watch()
	b.Cleanup(func() {
		for i := len(s.stop) - 1; i >= 0; i-- {
			s.stop[i]()
		}
	})
	return s
}

// watch follows the pods with an informer, which resumes when the API server ends a watch that is slow for a moment.
func (s *side) watch() {
	pods := cache.NewListWatchFromClient(s.env.Kube.CoreV1().RESTClient(), "pods", s.ns, fields.Everything())
	informer := cache.NewSharedInformer(pods, &corev1.Pod{}, 0)
	tell := func(kind watch.EventType, obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			done := pod.Status.Phase == corev1.PodSucceeded
			s.seen <- podEvent{kind, pod.Name, done, time.Now()}
			if done && s.onDone != nil {
				s.onDone()
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(watch.Added, obj) },
		UpdateFunc: func(_, obj any) { tell(watch.Modified, obj) },
	})
	require.NoError(s.tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	s.stop = append(s.stop, func() { cancel(); await.Return(s.tb, wg.Wait, "the informer ends") })
	require.True(s.tb, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
}

// await takes events until n of them are what is asked for, and returns those.
func (s *side) await(n int, want func(podEvent) bool) []podEvent {
	s.tb.Helper()
	patience := time.NewTimer(5 * time.Minute)
	defer patience.Stop()
	var found []podEvent
	for len(found) < n {
		select {
		case event := <-s.seen:
			if want(event) {
				found = append(found, event)
			}
		case <-patience.C:
			require.FailNow(s.tb, "the watch does not show it", "%d of %d", len(found), n)
		}
	}
	return found
}

func added(e podEvent) bool { return e.kind == watch.Added }

func lastOf(events []podEvent) time.Time { return events[len(events)-1].at }

// settled waits until the controller has taken the pool up.
func (s *side) settled(pool *v1alpha1.RunnerPool) {
	s.tb.Helper()
	require.Eventually(s.tb, func() bool {
		err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(pool), pool)
		return err == nil && pool.Status.ObservedGeneration == pool.Generation
	}, time.Minute, 20*time.Millisecond)
}

// newPool makes another empty pool, whose pods stay where they are: nothing is reported about them for as long as a row takes.
func (s *side) newPool() *v1alpha1.RunnerPool {
	s.tb.Helper()
	never := &metav1.Duration{}
	s.made++
	name := fmt.Sprintf("linux-%d", s.made)
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{name}, Replicas: ptr.To[int32](0),
			Resources:    v1alpha1.RunnerResources{CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi")},
			Template:     v1alpha1.RunnerTemplate{Image: "runner:1"},
			Provisioning: v1alpha1.Provisioning{StartTimeout: never, UnschedulableTimeout: never},
		},
	}
	require.NoError(s.tb, s.admin.Create(context.Background(), pool))
	return pool
}

func (s *side) scale(pool *v1alpha1.RunnerPool, replicas int) {
	s.tb.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	require.NoError(s.tb, s.admin.Patch(context.Background(), pool, client.RawPatch(types.MergePatchType, patch)))
}

// newReplicaSet has the built-in controller keep n pods like a runner's; they share the default ServiceAccount.
func (s *side) newReplicaSet(n int) {
	s.tb.Helper()
	pod, _, err := runnerpod.Build(s.newPool(), podOptions, runnerpod.NewSuffix())
	require.NoError(s.tb, err)
	s.made++
	set := fmt.Sprintf("builtin-%d", s.made)
	pod.Labels["set"] = set
	pod.Spec.ServiceAccountName, pod.Spec.RestartPolicy = "default", corev1.RestartPolicyAlways
	require.NoError(s.tb, s.admin.Create(context.Background(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: set},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": set}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}))
}

// runController runs the real controller on the side's namespace, under its shipped role. Its requests to the server are granted, after
// delay: only the server sends requests to GitHub, so a slow GitHub is a slow server.
func (s *side) runController(b *testing.B, delay time.Duration) {
	b.Helper()
	tokenFile := filepath.Join(b.TempDir(), "token")
	require.NoError(b, os.WriteFile(tokenFile, []byte("x"), 0o600))
	front := httptest.NewServer(slowly(delay))
	server, err := serverclient.New(serverclient.Options{BaseURL: front.URL, TokenFile: tokenFile})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	options := controller.Options{
		Config: s.env.As(b, controllerUser, "system:serviceaccounts", "system:authenticated"), Namespace: s.ns, Server: server,
		Pod: podOptions, Registry: prometheus.NewRegistry(), Log: discard,
	}
	wg.Go(func() {
		if err := controller.Run(ctx, options); err != nil {
			b.Errorf("the controller: %v", err)
		}
	})
	s.stop = append(s.stop, func() { cancel(); await.Return(b, wg.Wait, "the controller ends"); front.Close() })
}

// slowly stands in for the server: it grants every removal and takes every report, after delay.
func slowly(delay time.Duration) http.Handler {
	wait := func(r *http.Request) {
		if delay == 0 {
			return
		}
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+runnerapi.PathRetire, func(w http.ResponseWriter, r *http.Request) {
		var asked runnerapi.RetireRequest
		_ = json.NewDecoder(r.Body).Decode(&asked) // nothing asked, nothing granted
		wait(r)
		var answer runnerapi.RetireResponse
		for _, pod := range asked.Pods {
			answer.Answers = append(answer.Answers, runnerapi.RetireAnswer{UID: pod.UID, Verdict: runnerapi.Granted})
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
	mux.HandleFunc("POST "+runnerapi.PathPodsStopped, func(w http.ResponseWriter, r *http.Request) {
		wait(r)
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}
