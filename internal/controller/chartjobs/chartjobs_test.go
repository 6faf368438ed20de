package chartjobs

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

const (
	patience = 30 * time.Second
	interval = 50 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

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

// under is a client with the rights that a hook of the chart has, and no others (NET-8).
func under(t *testing.T, env *kit.Env, hook, runners string) dynamic.Interface {
	t.Helper()
	manifests, err := helmchart.Render(helmchart.Release{Upgrade: true, Values: map[string]any{
		"github": map[string]any{"appID": 1.0}, "runners": map[string]any{"namespace": runners}, "selfRegistering": map[string]any{"enabled": true},
	}})
	require.NoError(t, err)
	objects, err := helmchart.Objects(helmchart.Under(manifests, "templates/hooks/"+hook+".yaml"))
	require.NoError(t, err)
	admin := env.Client(t)
	for _, object := range objects {
		switch object.GetKind() {
		case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			if err := admin.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
	}
	config := env.As(t, "system:serviceaccount:bullpen-system:bullpen-"+hook, "system:serviceaccounts", "system:authenticated")
	made, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return made
}

func pool(namespace, name, release string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bullpen.dev/v1alpha1", "kind": "RunnerPool",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "finalizers": []any{"bullpen.dev/runner-pool-drain"},
			"labels": map[string]any{"app.kubernetes.io/instance": release},
		},
		"spec": map[string]any{
			"platform": "linux", "labels": []any{name}, "resources": map[string]any{"cpu": "1", "memory": "1Gi"},
			"template": map[string]any{"image": "none"},
		},
	}}
}

func TestDrain_POOL2_ReturnsWhenTheLastPoolIsGoneAndTouchesNoOthers(t *testing.T) {
	env := kit.Cluster(t)
	namespace := env.Namespace(t)
	admin, err := dynamic.NewForConfig(env.Config)
	require.NoError(t, err)
	pools := admin.Resource(runnerPools).Namespace(namespace)
	for name, release := range map[string]string{"one": "mine", "two": "mine", "other": "theirs"} {
		_, err := pools.Create(t.Context(), pool(namespace, name, release), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = pools.Patch(t.Context(), "two", types.MergePatchType,
		[]byte(`{"status":{"busy":2,"replicas":2,"readyReplicas":0,"starting":0,"idle":0,"terminating":0,"finished":0}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)

	var out output
	ended := make(chan error, 1)
	drainer := under(t, env, "drain", namespace)
	go func() {
		ended <- Drain(t.Context(), drainer, DrainOptions{Namespace: namespace, Selector: "app.kubernetes.io/instance=mine", Every: interval}, &out)
	}()
	release := func(name string) {
		t.Helper()
		require.Eventually(t, func() bool {
			found, err := pools.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && found.GetDeletionTimestamp() != nil
		}, patience, interval)
		_, err := pools.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	release("one")
	require.Eventually(t, func() bool { return bytes.HasSuffix([]byte(out.String()), []byte("waiting for two (2 busy)\n")) }, patience, interval, &out)
	require.Empty(t, ended, "a pool with busy runners is left")
	release("two")
	require.NoError(t, await.Receive(t, ended, "the chart's job returns"))
	require.Contains(t, out.String(), "no pools left")
	other, err := pools.Get(t.Context(), "other", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, other.GetDeletionTimestamp(), "the pool of another release")
	_, err = pools.Patch(t.Context(), "other", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// registering is an object of a kind of runners that register themselves, behind its finalizer.
func registering(namespace, kind, name string) *unstructured.Unstructured {
	runner := map[string]any{
		"organization": "acme", "ephemeral": true,
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "runner", "image": "none"}}}},
	}
	spec := runner
	if kind == "RunnerDeployment" || kind == "RunnerReplicaSet" {
		spec = map[string]any{"replicas": int64(0), "template": map[string]any{"spec": runner}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bullpen.dev/v1alpha1", "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": name, "finalizers": []any{"bullpen.dev/runner-registration"}},
		"spec":     spec,
	}}
}

// Uninstalling in any order: whatever would keep a finalizer goes while its controller is still there.
func TestDrain_RUN2_WaitsForRunnersThatRegisterThemselves(t *testing.T) {
	env := kit.Cluster(t)
	namespace := env.Namespace(t)
	admin, err := dynamic.NewForConfig(env.Config)
	require.NoError(t, err)
	names := map[string]string{"runnerdeployments": "RunnerDeployment", "runnersets": "RunnerSet", "runnerreplicasets": "RunnerReplicaSet", "runners": "Runner"}
	for plural, one := range names {
		_, err := admin.Resource(kind(plural)).Namespace(namespace).Create(t.Context(), registering(namespace, one, "by-hand"), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	drainer := under(t, env, "drain", namespace)
	without := DrainOptions{Namespace: namespace, Selector: "app.kubernetes.io/instance=mine", Every: interval}
	require.NoError(t, Drain(t.Context(), drainer, without, &output{}), "kinds that are not enabled are not checked")
	var out output
	ended := make(chan error, 1)
	with := without
	with.SelfRegistering = true
	go func() { ended <- Drain(t.Context(), drainer, with, &out) }()
	for plural := range names {
		objects := admin.Resource(kind(plural)).Namespace(namespace)
		require.Eventually(t, func() bool {
			found, err := objects.Get(t.Context(), "by-hand", metav1.GetOptions{})
			return err == nil && found.GetDeletionTimestamp() != nil
		}, patience, interval, plural)
		require.Empty(t, ended)
		_, err := objects.Patch(t.Context(), "by-hand", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, await.Receive(t, ended, "the chart's job returns"))
	require.Contains(t, out.String(), "runnerdeployment by-hand")
}

func TestDrain_SaysWhatItWaitedForAndNeedsASelector(t *testing.T) {
	env := kit.Cluster(t)
	namespace := env.Namespace(t)
	drainer := under(t, env, "drain", namespace)
	require.ErrorContains(t, Drain(t.Context(), drainer, DrainOptions{Namespace: namespace, Every: interval}, &output{}), "no selector")
	admin, err := dynamic.NewForConfig(env.Config)
	require.NoError(t, err)
	pools := admin.Resource(runnerPools).Namespace(namespace)
	_, err = pools.Create(t.Context(), pool(namespace, "held", "mine"), metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	out := &output{}
	ended := make(chan error, 1)
	go func() {
		ended <- Drain(ctx, drainer, DrainOptions{Namespace: namespace, Selector: "app.kubernetes.io/instance=mine", Every: interval}, out)
	}()
	require.Eventually(t, func() bool { return out.String() != "" }, patience, interval)
	cancel()
	require.ErrorContains(t, await.Receive(t, ended, "the chart's job returns"), "held (0 busy)")
	_, err = pools.Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestApplyCRDs_NET8_BringsDefinitionsUpToDateUnderTheHooksRole(t *testing.T) {
	env := kit.Cluster(t)
	admin, err := dynamic.NewForConfig(env.Config)
	require.NoError(t, err)
	const name = "runnerpools.bullpen.dev"
	// As an older version would have it.
	_, err = admin.Resource(definitions).Patch(t.Context(), name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns/0"},{"op":"remove","path":"/spec/names/shortNames"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	files, err := charts.CRDs()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var documents [][]byte
	for _, file := range files {
		documents = append(documents, file.Content)
	}
	hook := under(t, env, "crds", env.Namespace(t))
	for range 2 { // the second time it changes nothing
		var out output
		require.NoError(t, ApplyCRDs(t.Context(), hook, documents, &out))
		require.Contains(t, out.String(), name+" is up to date")
	}
	found, err := admin.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	short, _, err := unstructured.NestedStringSlice(found.Object, "spec", "names", "shortNames")
	require.NoError(t, err)
	require.Equal(t, []string{"rpool"}, short)

	_, err = hook.Resource(definitions).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	err = hook.Resource(definitions).Delete(t.Context(), name, metav1.DeleteOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestTest_AsksUntilAllAreWell(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/never" || asked.Add(1) < 3 {
			http.Error(w, "the watch has not delivered yet", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	var out output
	require.NoError(t, Test(t.Context(), server.Client(), []string{server.URL + "/a", server.URL + "/b"}, interval, &out))
	require.EqualValues(t, 4, asked.Load())
	ctx, cancel := context.WithTimeout(t.Context(), 5*interval)
	defer cancel()
	require.Error(t, Test(ctx, server.Client(), []string{server.URL + "/never"}, interval, &out))
	require.ErrorContains(t, ask(t.Context(), server.Client(), server.URL+"/never"), "503 Service Unavailable: the watch has not delivered yet")
}
