package runnerdeployment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// POOL-8: a deployment reports whether its autoscaler sees what it decides on.
func TestStatus_POOL8_TheAutoscalerIsShown(t *testing.T) {
	d := &v1alpha1.RunnerDeployment{}
	shown := func() string {
		status := statusOf(d, Wish{Hash: "a"}, nil, nil, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionScalingActive); c != nil {
			return c.Reason
		}
		return ""
	}
	require.Empty(t, shown())
	d.Spec.Autoscaling = &v1alpha1.RunnerAutoscaling{}
	require.Equal(t, "AwaitingData", shown())
	d.Status.Autoscaling = &v1alpha1.AutoscalingStatus{DesiredReplicas: ptr.To[int32](2), Problem: "nobody answers"}
	require.Equal(t, "NoData", shown())
}
