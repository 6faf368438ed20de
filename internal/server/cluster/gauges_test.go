package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/server/history"
)

// Capacity is what the spec allows, whatever the autoscaler wants just now; the rest is what the controller has counted.
func TestPoolGauges_AreTheStatusAndTheCeilingOfTheSpec(t *testing.T) {
	pool := &v1alpha1.RunnerPool{
		Spec:   v1alpha1.RunnerPoolSpec{Replicas: ptr.To[int32](3)},
		Status: v1alpha1.RunnerPoolStatus{Busy: 5, Idle: 4, Starting: 2, DesiredReplicas: ptr.To[int32](11)},
	}
	require.Equal(t, history.Gauges{Busy: 5, Idle: 4, Starting: 2, Capacity: 3}, poolGauges(pool))
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MaxReplicas: ptr.To[int32](40)}
	require.EqualValues(t, 40, poolGauges(pool).Capacity)
	pool.Spec.Autoscaling.MaxReplicas = nil
	require.EqualValues(t, mostCapacity, poolGauges(pool).Capacity, "a chart has no room for two thousand million")
}
