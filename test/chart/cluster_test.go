package chart

import (
	"os"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

const (
	patience = time.Minute
	interval = 50 * time.Millisecond
)

// containsPolicy reports whether it was the policy on privileges that refused.
func containsPolicy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "other-bullpen-runner-privileges.elsewhere")
}

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// dryApply has the API server check an object, unknown fields included, and change nothing.
func dryApply(t *testing.T, admin client.Client, object *unstructured.Unstructured) error {
	t.Helper()
	data, err := object.MarshalJSON()
	require.NoError(t, err)
	return admin.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.ApplyPatchType, data), client.DryRunAll, client.FieldOwner("chart"),
		client.ForceOwnership, &client.PatchOptions{Raw: &metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict}})
}

// A real API server accepts everything, with nothing and with everything turned on, except the kinds of the
// Prometheus operator, which it does not know.
func TestObjects_AnAPIServerTakesThem(t *testing.T) {
	admin := kit.Cluster(t).Client(t)
	for _, namespace := range []string{"bullpen-system", "bullpen-runners"} {
		err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	unknown := map[string]bool{}
	for name, text := range map[string]string{"least": least, "everything": everything} {
		for _, object := range render(t, helmchart.Release{Upgrade: true}, text) {
			err := dryApply(t, admin, object)
			if meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err) {
				unknown[object.GetKind()] = true
				continue
			}
			require.NoError(t, err, "%s: %s", name, id(object))
		}
	}
	require.Equal(t, map[string]bool{"ServiceMonitor": true, "PrometheusRule": true}, unknown)

	// The check can fail.
	objects := render(t, helmchart.Release{}, least)
	wrong := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(find(t, objects, "Deployment bullpen-system/bullpen-server"))}
	require.NoError(t, unstructured.SetNestedField(wrong.Object, int64(1), "spec", "replica"))
	require.ErrorContains(t, dryApply(t, admin, wrong), "replica")
}

// NET-7, EXCL-7: policies of a release hold among its runners, under any names, and nowhere else.
func TestPolicies_HoldInTheNamespaceOfTheirRelease(t *testing.T) {
	env := kit.Cluster(t)
	admin := env.Client(t)
	text := least + "runners: {namespace: elsewhere-runners}\nmicroVMRuntimeClasses: [only-this]\n"
	var last string
	for _, object := range render(t, helmchart.Release{Name: "other", Namespace: "elsewhere"}, text) {
		if slices.Contains([]string{"Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, object.GetKind()) {
			require.NoError(t, admin.Create(t.Context(), object))
			last = object.GetName()
		}
	}
	require.NotEmpty(t, last)
	pod := func(namespace string) *corev1.Pod {
		privileged := true
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: map[string]string{"bullpen.dev/runner": "true"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			}}},
		}
	}
	var err error
	defer func() { t.Logf("the last answer: %v", err) }()
	require.Eventually(t, func() bool {
		err = admin.Create(t.Context(), pod("elsewhere-runners"), client.DryRunAll)
		return containsPolicy(err)
	}, patience, interval)
	require.ErrorContains(t, err, "only-this")
	err = admin.Create(t.Context(), pod("kube-public"), client.DryRunAll)
	require.False(t, containsPolicy(err), "another namespace is not this release's: %v", err)
}
