package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// A pool's own status is copied: a condition counts while it is true, and a pool without progress is starved of runners.
func TestPoolStatus_IsWhatThePoolSays(t *testing.T) {
	pool := func(status v1alpha1.RunnerPoolStatus, conditions ...metav1.Condition) *v1alpha1.RunnerPool {
		status.Conditions = conditions
		return &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "p"}, Spec: v1alpha1.RunnerPoolSpec{Platform: "linux"}, Status: status}
	}
	says := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Message: message}
	}
	short := v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](4), Replicas: 3, Idle: 0, Busy: 2, Starting: 1}
	got := poolStatus(pool(short, says(v1alpha1.ConditionSaturated, metav1.ConditionTrue, "full"), says(v1alpha1.ConditionStarved, metav1.ConditionFalse, "has room")))
	require.Equal(t, "full", got.Saturated)
	require.Empty(t, got.Starved)
	require.Equal(t, []int64{4, 3, 0, 2, 1}, []int64{got.Desired, got.Replicas, got.Idle, got.Busy, got.Starting})
	require.Equal(t, "p", got.Ref.Name)
	room := short
	room.Idle = 1
	got = poolStatus(pool(room, says(v1alpha1.ConditionSaturated, metav1.ConditionTrue, "no runner is idle")))
	require.Empty(t, got.Saturated, "one is, and the condition holds on for a while")

	got = poolStatus(pool(short, says(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "the template is refused")))
	require.Equal(t, "the template is refused", got.Starved)
	got = poolStatus(pool(short, says(v1alpha1.ConditionProgressing, metav1.ConditionTrue, "creating or removing runners")))
	require.Empty(t, got.Starved)
	whole := v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](2), Replicas: 2, Busy: 2}
	got = poolStatus(pool(whole, says(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "the pool matches its spec")))
	require.Empty(t, got.Starved)
}

// That images are being pulled is no problem, and that a node cannot pull them is one.
func TestDescribePool_ImagesThatCannotBePulledAreAProblem(t *testing.T) {
	for reason, want := range map[string][]adminapi.Problem{
		"Pulling":                 {},
		v1alpha1.ReasonPullFailed: {{Condition: v1alpha1.ConditionImagesPulled, Sentence: "failed on n1"}},
	} {
		pool := &v1alpha1.RunnerPool{Status: v1alpha1.RunnerPoolStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionImagesPulled, Status: metav1.ConditionFalse, Reason: reason, Message: "failed on n1"},
		}}}
		require.Equal(t, want, describePool(pool).Problems, reason)
		require.Equal(t, len(want) > 0, poolStatus(pool).PullFailed != "", reason)
	}
	pulled := &v1alpha1.RunnerPool{Status: v1alpha1.RunnerPoolStatus{Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionImagesPulled, Status: metav1.ConditionTrue, Reason: "Pulled", Message: "all"},
	}}}
	require.Empty(t, describePool(pulled).Problems)
}

// Administrators see the same of a pod and of its trimmed copy.
func TestTrimPod_KeepsWhatAdministratorsSee(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		status       corev1.PodStatus
		ready, ended bool
	}{
		"ready": {corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}}, true, false},
		"no longer ready": {corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}, false, false},
		"ended":           {corev1.PodStatus{Phase: corev1.PodSucceeded}, false, true},
		"failed":          {corev1.PodStatus{Phase: corev1.PodFailed}, false, true},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "runners", Name: "linux-4-a", UID: "u", CreationTimestamp: created, Labels: map[string]string{runnerpod.LabelPool: "linux-4"},
			},
			Spec: corev1.PodSpec{NodeName: "node-1"}, Status: c.status,
		}
		want := toRunnerPod(pod)
		require.Equal(t, [2]bool{c.ready, c.ended}, [2]bool{want.Ready, want.Ended}, name)
		require.Equal(t, "node-1", want.Node)
		require.Equal(t, "linux-4", want.Pool.Name)
		trimmed, err := trimPod(pod)
		require.NoError(t, err)
		kept, ok := trimmed.(*corev1.Pod)
		require.True(t, ok)
		require.Equal(t, want, toRunnerPod(kept), name)
	}
}

// A pool's problems are its conditions that hold, and that it does not come to its number though no condition of its own says why.
func TestDescribePool_NamesItsProblems(t *testing.T) {
	three := int32(3)
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "linux-4"}}
	pool.Spec.Platform, pool.Spec.Labels = "linux", []string{"linux-4"}
	pool.Status.DesiredReplicas, pool.Status.Idle, pool.Status.Terminating = &three, 1, 1
	require.Empty(t, describePool(pool).Problems)
	pool.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Message: "1 of 3"},
		{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Message: "the template is refused"},
		{Type: v1alpha1.ConditionLabelConflict, Status: metav1.ConditionTrue, Message: "pool b has its label, too"},
		{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionFalse, Message: "no"},
	}
	described := describePool(pool)
	require.Equal(t, []adminapi.Problem{
		{Condition: "LabelConflict", Sentence: "pool b has its label, too"}, {Condition: "Progressing", Sentence: "the template is refused"},
	}, described.Problems)
	require.EqualValues(t, 1, described.Terminating)
	pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionTrue, Message: "no runner is idle"}}
	require.Empty(t, describePool(pool).Problems, "one is")
	pool.Status.Idle = 0
	require.Equal(t, []adminapi.Problem{{Condition: "Saturated", Sentence: "no runner is idle"}}, describePool(pool).Problems)
	require.Equal(t, "linux", described.Platform)
}
