package chart

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/internal/cli/uninstall"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// R9: the chart as Argo CD and `kubectl apply` render it has no hook. As an ordinary object, the Job that drains the pools would delete
// them as soon as it is applied.
func TestTemplate_R9_HasNoHooks(t *testing.T) {
	for _, upgrade := range []bool{false, true} {
		for _, object := range render(t, helmchart.Release{Template: true, Upgrade: upgrade}, everything) {
			require.NotContains(t, object.GetAnnotations(), "helm.sh/hook", id(object))
			require.NotContains(t, []string{"Job", "Pod"}, object.GetKind(), id(object))
		}
	}
	count := func(release helmchart.Release, text string) (hooks int) {
		for _, object := range render(t, release, text) {
			if object.GetAnnotations()["helm.sh/hook"] != "" {
				hooks++
			}
		}
		return hooks
	}
	all := count(helmchart.Release{}, everything)
	require.Equal(t, 9, all, "two Jobs, what they may do, and the pod of helm test")
	require.Equal(t, all, count(helmchart.Release{Template: true}, everything+"hooks: always\n"))
	require.Zero(t, count(helmchart.Release{}, everything+"hooks: never\n"))
	_, err := helmchart.Render(helmchart.Release{Values: values(t, least+"hooks: sometimes\n")})
	require.ErrorContains(t, err, "/hooks")
}

// The namespace of the runners outlives the release, whichever tool deletes it.
func TestTemplate_R9_TheNamespaceOfTheRunnersIsKeptByEachTool(t *testing.T) {
	namespace := find(t, render(t, helmchart.Release{Template: true}, least), "Namespace /bullpen-runners")
	require.Equal(t, map[string]any{
		"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled",
	}, at(t, namespace, "metadata", "annotations"))
}

// bundle is what a GitOps tool applies: the definitions, and the chart without its hooks.
func bundle(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	files, err := charts.CRDs()
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for _, file := range files {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(file.Content, &object.Object))
		objects = append(objects, object)
	}
	system := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "bullpen-system"}}}
	return append(append(objects, system), render(t, helmchart.Release{Template: true}, text)...)
}

// applyAll applies objects in their order, and again what was refused because something was missing, as tools do. It fails on any other error.
func applyAll(t *testing.T, admin client.Client, objects []*unstructured.Unstructured) {
	t.Helper()
	left := slices.Clone(objects)
	var refused error
	require.Eventually(t, func() bool {
		left = slices.DeleteFunc(left, func(object *unstructured.Unstructured) bool {
			data, err := object.MarshalJSON()
			if err == nil {
				err = admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.ApplyPatchType, data), client.FieldOwner("gitops"), client.ForceOwnership)
			}
			if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // of a kind or in a namespace that is missing
				refused = fmt.Errorf("%s: %w", id(object), err)
			}
			return err == nil
		})
		return len(left) == 0 || refused != nil
	}, patience, interval)
	require.NoError(t, refused)
}

const onePool = least + "pools: {linux: {platform: linux, labels: [linux-1cpu], resources: {cpu: 1, memory: 1Gi}, template: {image: none}}}\n"

// R9: everything is applied at once, in any order, twice, and deleted at once, in any order. The pools then wait for a controller that is gone, and
// bullpen uninstall ends it.
func TestTemplate_R9_POOL13_AppliedAndDeletedAtOnceInAnyOrder(t *testing.T) {
	env := kit.Bare(t)
	admin := env.Client(t)
	random := rand.New(rand.NewPCG(27, 9))
	for range 2 {
		objects := bundle(t, onePool)
		shuffle := func() {
			random.Shuffle(len(objects), func(a, b int) { objects[a], objects[b] = objects[b], objects[a] })
		}
		shuffle()
		applyAll(t, admin, objects)
		shuffle()
		applyAll(t, admin, objects)         // an upgrade, that changes nothing
		require.Eventually(t, func() bool { // once the namespace has its default ServiceAccount
			return admin.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "bullpen-runners", Name: "linux-a", Labels: map[string]string{"bullpen.dev/runner": "true", "bullpen.dev/runner-pool": "linux"}},
				Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), NodeSelector: map[string]string{"no": "node"}, Containers: []corev1.Container{{Name: "runner", Image: "none"}}},
			}) == nil
		}, patience, interval)
		shuffle()
		for _, object := range objects {
			err := admin.Delete(t.Context(), object.DeepCopy())
			require.True(t, err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%s: %v", id(object), err)
		}
		there := func(kind, namespace, name string) bool {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion("bullpen.dev/v1alpha1")
			if kind != "RunnerPool" {
				object.SetAPIVersion("v1")
			}
			object.SetKind(kind)
			err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object)
			return err == nil || !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err)
		}
		require.True(t, there("RunnerPool", "bullpen-runners", "linux"), "it waits for a controller")
		report, err := uninstall.Run(await.Context(t), env.Config, uninstall.Options{
			Namespace: "bullpen-runners", SystemNamespace: "bullpen-system", Every: interval, Patience: 10 * interval, WithoutServer: true,
		})
		require.NoError(t, err, "%+v", report)
		require.True(t, report.Done)
		require.Eventually(t, func() bool {
			return !there("Namespace", "", "bullpen-runners") && !there("Namespace", "", "bullpen-system") && !there("RunnerPool", "bullpen-runners", "linux")
		}, patience, interval, "something holds a namespace")
		var held []string
		require.Eventually(t, func() bool { // a kind that is being deleted takes no new objects
			held = nil
			for _, object := range objects {
				crd := object.DeepCopy()
				if object.GetKind() == "CustomResourceDefinition" && !apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(object), crd)) {
					nudge(t, admin, crd)
					conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
					held = append(held, fmt.Sprintf("%s, deleted at %v: %v", crd.GetName(), crd.GetDeletionTimestamp(), conditions))
				}
			}
			return len(held) == 0
		}, 3*patience, interval, "something holds a kind: %s", deferred(func() string { return strings.Join(held, "; ") }))
	}
}

// nudge has the API server try again to remove a kind whose objects it could not list: it does so after a pause that doubles each time, and may find
// its cache of them "(re)initializing" for longer than this test waits. That cache tries again after pauses of up to 30 s, too.
func nudge(t *testing.T, admin client.Client, crd *unstructured.Unstructured) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(crd.Object["status"]), "InstanceDeletionFailed") {
		return
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"test/nudged":%q}}}`, time.Now())
	err := admin.Patch(t.Context(), crd.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
	require.NoError(t, client.IgnoreNotFound(err))
}

// deferred is a text that is made when it is printed.
type deferred func() string

func (d deferred) String() string { return d() }
