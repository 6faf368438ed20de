package runnerowner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// RUN-3 (adc889ce, c612e87d): a rollout on a real API server. The old set goes only when nothing of it is left, and one remains.
func TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet(t *testing.T) {
	b := newBench(t, replicaSets{})
	key := types.NamespacedName{Namespace: b.namespace, Name: owner}
	deployment := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.RunnerDeploymentSpec{Replicas: ptr.To[int32](2), Template: v1alpha1.RunnerTemplateSpec{Spec: some(2, true).spec}},
	}
	require.NoError(t, b.admin.Create(t.Context(), deployment))
	old := b.have(2)
	b.idle(old...)
	b.work(old[0])
	sets := func() []v1alpha1.RunnerReplicaSet {
		var list v1alpha1.RunnerReplicaSetList
		require.NoError(t, b.admin.List(t.Context(), &list, client.InNamespace(b.namespace)))
		return list.Items
	}
	first := sets()[0].Name
	patch := `{"spec":{"template":{"spec":{"template":{"spec":{"containers":[{"name":"runner","image":"runner:2"}]}}}}}}`
	require.NoError(t, b.admin.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))))
	b.eventually("the new set is made at full size", func() bool { return len(b.of("runner:2")) == 2 })
	require.True(t, b.exists(old[1]), "K 3.2: the old one is untouched until the new one serves")
	b.eventually("they are on a node", func() bool {
		b.idleIfPending(b.of("runner:2"))
		return !b.exists(old[1])
	})
	b.eventually("the old set has the busy one alone", func() bool { return len(b.pods()) == 3 && len(sets()) == 2 })
	require.True(t, b.exists(old[0]), "a busy runner delays without limit")
	b.finish(old[0])
	b.eventually("exactly one set remains", func() bool { return len(sets()) == 1 && sets()[0].Name != first })
	require.Len(t, b.pods(), 2)

	busy := b.pods()[0]
	b.work(busy)
	require.NoError(t, b.admin.Delete(t.Context(), deployment))
	b.eventually("the idle one goes", func() bool { return len(b.pods()) == 1 })
	require.True(t, b.exists(busy))
	b.finish([]corev1.Pod{busy}...)
	b.eventually("all is gone", func() bool {
		return len(sets()) == 0 && apierrors.IsNotFound(b.admin.Get(t.Context(), key, deployment)) && len(b.pods()) == 0
	})
}
