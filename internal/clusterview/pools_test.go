package clusterview

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// What a pool says of itself is taken over: a condition counts while it holds, and a pool that makes no progress is starved of runners.
func TestPoolStatus_IsWhatThePoolSays(t *testing.T) {
	pool := func(status v1alpha1.RunnerPoolStatus, conditions ...metav1.Condition) *v1alpha1.RunnerPool {
		status.Conditions = conditions
		return &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "p"}, Spec: v1alpha1.RunnerPoolSpec{Platform: "linux"}, Status: status}
	}
	says := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: message}
	}
	short := v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](4), Replicas: 3, Idle: 0, Busy: 2, Booting: 1}
	got := poolStatus(pool(short, says(v1alpha1.ConditionSaturated, metav1.ConditionTrue, "full"), says(v1alpha1.ConditionStarved, metav1.ConditionFalse, "has room")))
	require.Equal(t, "full", got.Saturated)
	require.Empty(t, got.Starved)
	require.Equal(t, []int64{4, 3, 0, 2, 1}, []int64{got.Desired, got.Replicas, got.Idle, got.Busy, got.Booting})
	require.Equal(t, "p", got.Ref.Name)

	got = poolStatus(pool(short, says(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "the template is refused")))
	require.Equal(t, "the template is refused", got.Starved)
	got = poolStatus(pool(short, says(v1alpha1.ConditionProgressing, metav1.ConditionTrue, "runners are being created")))
	require.Empty(t, got.Starved)
	whole := v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](2), Replicas: 2, Busy: 2}
	got = poolStatus(pool(whole, says(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "the pool is what its spec says")))
	require.Empty(t, got.Starved)
}
