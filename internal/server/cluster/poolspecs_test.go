package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func changedPool(generation int64) *v1alpha1.RunnerPool {
	return &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "runners", Name: "linux", UID: "u", Generation: generation,
			Annotations: map[string]string{v1alpha1.AnnotationChangedBy: "u 7 system:serviceaccount:a:b", v1alpha1.AnnotationIntakeNote: "by ada"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "bullpen-pool", Time: ptr.To(metav1.Unix(60, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{},"f:spec":{"f:intake":{}}}`)},
				{Manager: "bullpen-controller", Subresource: "status", Time: ptr.To(metav1.Unix(90, 0)), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
				{Manager: "odd"},
			},
		},
		Spec: v1alpha1.RunnerPoolSpec{
			Intake: v1alpha1.IntakePaused, Replicas: ptr.To[int32](3), Labels: []string{"linux-4"},
			Template: v1alpha1.RunnerTemplate{Image: "registry.example.com/secret-name"},
		},
	}
}

// The audit gets the spec without its template, the managers of its fields, and the author of this generation only.
func TestAuditedPool_HasSpecManagersAndAuthor(t *testing.T) {
	pool, err := auditedPool(changedPool(7))
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:a:b", pool.Author)
	require.Equal(t, "by ada", pool.Note)
	require.Equal(t, "Paused", pool.Spec["intake"])
	require.EqualValues(t, 3, pool.Spec["replicas"])
	require.Regexp(t, `^sha256:[0-9a-f]{16}$`, pool.Spec["template"], "environment variables of a template may be secret")
	require.Len(t, pool.Managers, 1)
	require.Equal(t, "bullpen-pool", pool.Managers[0].Name)
	require.Equal(t, time.Unix(60, 0).UTC(), pool.Managers[0].At)
	require.Contains(t, pool.Managers[0].Spec, "f:intake")

	for _, generation := range []int64{6, 8, 70} {
		pool, err = auditedPool(changedPool(generation))
		require.NoError(t, err)
		require.Empty(t, pool.Author, "generation %d is another change", generation)
	}
	copied := changedPool(7)
	copied.UID = "v"
	pool, err = auditedPool(copied)
	require.NoError(t, err)
	require.Empty(t, pool.Author, "a copy of a pool has no author")
	other := changedPool(7)
	other.Spec.Template.Image = "another"
	same, err := auditedPool(changedPool(7))
	require.NoError(t, err)
	different, err := auditedPool(other)
	require.NoError(t, err)
	require.NotEqual(t, same.Spec["template"], different.Spec["template"])
}

// Only a change of the spec is reported: the controller writes the status every few seconds.
func TestPoolSpecEvent_IgnoresTheStatus(t *testing.T) {
	changes := 0
	v := &View{opt: Options{PoolSpecChanged: func() { changes++ }}}
	v.poolSpecEvent(nil, changedPool(7))
	require.Equal(t, 1, changes, "it appeared")
	status := changedPool(7)
	status.ResourceVersion = "9"
	v.poolSpecEvent(changedPool(7), status)
	require.Equal(t, 1, changes)
	v.poolSpecEvent(changedPool(7), changedPool(8))
	require.Equal(t, 2, changes)
	recreated := changedPool(7)
	recreated.UID = "v"
	v.poolSpecEvent(changedPool(7), recreated)
	require.Equal(t, 3, changes)
	(&View{}).poolSpecEvent(nil, changedPool(7)) // nothing is called
}

func TestNewGenerations_ReturnsWhatIsNotKnown(t *testing.T) {
	v := &View{pools: cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.RunnerPool{}, 0, cache.Indexers{})}
	require.NoError(t, v.pools.GetStore().Add(changedPool(7)))
	for known, want := range map[int64]int{0: 1, 6: 1, 7: 0, 8: 0} {
		pools, err := v.NewGenerations(map[string]int64{"u": known})
		require.NoError(t, err)
		require.Len(t, pools, want, "known %d", known)
	}
	pools, err := v.NewGenerations(map[string]int64{"other": 9})
	require.NoError(t, err)
	require.Len(t, pools, 1)
	uids, listed := v.PoolUIDs()
	require.Equal(t, []string{"u"}, uids)
	require.False(t, listed, "the informer has not listed")
}
