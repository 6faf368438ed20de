package runnerowner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// POOL-8: an owner reports whether its autoscaler sees what it decides on.
func TestScaling_POOL8_SaysWhetherItSees(t *testing.T) {
	var list []metav1.Condition
	now := t0
	show := func(s Scaling, terminating bool) *metav1.Condition {
		now = now.Add(time.Minute)
		s.Show(&list, terminating, 7, now)
		return meta.FindStatusCondition(list, v1alpha1.ConditionScalingActive)
	}
	scaling := Scaling{Spec: &v1alpha1.RunnerAutoscaling{}}
	c := show(scaling, false)
	require.Equal(t, []any{metav1.ConditionUnknown, "AwaitingData", int64(7)}, []any{c.Status, c.Reason, c.ObservedGeneration})
	scaling.Status = &v1alpha1.AutoscalingStatus{DesiredReplicas: ptr.To[int32](3)}
	c = show(scaling, false)
	require.Equal(t, []any{metav1.ConditionTrue, "DemandKnown"}, []any{c.Status, c.Reason})
	turned := c.LastTransitionTime
	require.Equal(t, turned, show(scaling, false).LastTransitionTime)
	scaling.Status.Problem = "nobody answers"
	c = show(scaling, false)
	require.Equal(t, []any{metav1.ConditionFalse, "NoData", "the number of runners does not fall below 3: nobody answers"}, []any{c.Status, c.Reason, c.Message})
	require.True(t, turned.Before(&c.LastTransitionTime))
	require.Nil(t, show(scaling, true), "nothing scales what is being deleted")
	require.NotNil(t, show(scaling, false))
	require.Nil(t, show(Scaling{Status: scaling.Status}, false), "it scales no more")
}

func TestConditions_POOL8_AnOwnersAutoscalerIsShown(t *testing.T) {
	s, o := newState(t, func(o *Owner) {
		o.Scaling = Scaling{Spec: &v1alpha1.RunnerAutoscaling{}, Status: &v1alpha1.AutoscalingStatus{DesiredReplicas: ptr.To[int32](2), Problem: "nobody answers"}}
	})
	status := statusOf(o, s.facts(o, s.makePlan(o, -1, t0), t0), t0)
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionScalingActive)
	require.NotNil(t, c)
	require.Equal(t, "NoData", c.Reason)
}
