package poolspec

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func TestShare_SaysNothingOfWhatItCannotRead(t *testing.T) {
	require.Zero(t, share(intstr.FromString("nonsense"), 10, false))
	require.Equal(t, 1, share(intstr.FromString("5%"), 39, false))
	require.Equal(t, 2, share(intstr.FromString("5%"), 39, true))
}

func TestScaling_ReadsTheSpec(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	require.Equal(t, scaling.Pool{Name: "a/b", Replicas: 1}, Scaling(pool, "a/b"), "as the API server would have it")
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true}
	require.Equal(t, scaling.Pool{
		Name: "a/b", Replicas: 1, Autoscaled: true, MinIdle: 1, Cooldown: 5 * time.Minute, Stabilization: 3 * time.Minute,
	}, Scaling(pool, "a/b"), "no ceiling is left for the plan to complain of")
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{
		Enabled: true, MinIdle: ptr.To[int32](0), MaxReplicas: ptr.To[int32](9),
		ScaleDownCooldown: &metav1.Duration{}, Stabilization: &metav1.Duration{Duration: time.Minute},
	}
	require.Equal(t, scaling.Pool{Name: "a/b", Replicas: 1, Autoscaled: true, Max: 9, Stabilization: time.Minute}, Scaling(pool, "a/b"), "0 is a value")
	pool.Spec.Autoscaling.MinIdle, pool.Spec.Intake = ptr.To[int32](5), v1alpha1.IntakeDrained
	drained := Scaling(pool, "a/b")
	require.Zero(t, drained.MinIdle)
	require.Zero(t, drained.Replicas)
}

// A stored pool may have minWarm, the former name of minIdle, also beside the new one.
func TestScaling_ReadsTheFormerNameOfMinIdle(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinWarm: ptr.To[int32](4), MaxReplicas: ptr.To[int32](9)}
	require.Equal(t, 4, Scaling(pool, "a/b").MinIdle)
	require.Equal(t, 4, Desired(pool, nil, nil))
	pool.Spec.Autoscaling.MinIdle = ptr.To[int32](2)
	require.Equal(t, 2, Scaling(pool, "a/b").MinIdle)
}

func TestDispatch_ReadsTheSpec(t *testing.T) {
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "linux", Annotations: map[string]string{v1alpha1.AnnotationIntakeNote: "note"}}}
	pool.Spec = v1alpha1.RunnerPoolSpec{
		Platform: v1alpha1.PlatformLinux, Labels: []string{"linux-4"}, Queueing: v1alpha1.QueueingFairShare,
		Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("500m"), Memory: resource.MustParse("1500k")},
	}
	want := dispatch.Pool{
		Namespace: "runners", Name: "linux", Labels: []string{"linux-4"}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 500, MemoryMB: 2}, RunnerGroupID: 1, FairShare: true,
	}
	require.Equal(t, want, Dispatch(pool), "memory is charged rounded up; the note of an open pool is nobody's")
	pool.Spec.Intake, pool.Spec.Scope, pool.Spec.RunnerGroup = v1alpha1.IntakePaused, v1alpha1.ScopeRepository, ptr.To(intstr.FromInt32(7))
	want.Paused, want.PausedNote, want.RepositoryScope, want.RunnerGroupID = true, "note", true, 7
	require.Equal(t, want, Dispatch(pool))
	pool.Spec.RunnerGroup = ptr.To(intstr.FromString("builders"))
	want.RunnerGroup, want.RunnerGroupID = "builders", 0
	require.Equal(t, want, Dispatch(pool))
}
