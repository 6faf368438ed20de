package cluster_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
)

// The API server records no manager for the scale subresource while spec.replicas has none: then the audit log names none, and has no time
// of it. Otherwise it records one without a time.
func TestNewGenerations_ManagersOfScale(t *testing.T) {
	s := newScene(t)
	admins := s.env.Client(t, v1alpha1.AddToScheme)
	pool := &v1alpha1.RunnerPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunnerPool},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "unowned"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"unowned-4"}, Template: v1alpha1.RunnerTemplate{Image: "none"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
		},
	}
	applied := pool.DeepCopy()
	require.NoError(t, admins.Patch(t.Context(), applied, client.Apply, client.FieldOwner("bullpen-up"))) //nolint:staticcheck // of a typed object
	seen := poolaudit.Pool{Generation: applied.Generation}
	next := func() poolaudit.Change {
		t.Helper()
		before := seen
		s.eventually("the watch shows the next generation", func() bool {
			pools, err := s.view.NewGenerations(map[string]int64{string(applied.UID): before.Generation})
			require.NoError(t, err)
			for _, p := range pools {
				if p.Name == pool.Name {
					seen = p
				}
			}
			return seen.Generation > before.Generation
		})
		change, changed := poolaudit.Compare(before.Spec, seen)
		require.True(t, changed)
		return change
	}
	scale := func(replicas int) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		require.NoError(t, admins.SubResource("scale").Patch(t.Context(), pool.DeepCopy(), patch, client.FieldOwner("kubectl")))
	}
	seen.Spec = map[string]any{}
	seen.Generation = 0
	first := next()
	require.Equal(t, "bullpen-up", first.Manager)
	require.False(t, first.At.IsZero())

	scale(3)
	unknown := next()
	require.EqualValues(t, 3, unknown.After["replicas"])
	require.Empty(t, unknown.Manager, "bullpen-up manages other fields")
	require.True(t, unknown.At.IsZero())

	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":4}}`))
	require.NoError(t, admins.Patch(t.Context(), pool.DeepCopy(), patch, client.FieldOwner("kubectl-patch")))
	patched := next()
	require.Equal(t, "kubectl-patch", patched.Manager)
	require.False(t, patched.At.IsZero())

	scale(5)
	scaled := next()
	require.Equal(t, "kubectl", scaled.Manager)
	require.True(t, scaled.At.IsZero(), "the entry of the scale subresource has no time")
}
