package runnerowner

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Scaling is what an owner's autoscaler is to do and has done; nil in both where there is none.
type Scaling struct {
	Spec   *v1alpha1.RunnerAutoscaling
	Status *v1alpha1.AutoscalingStatus
}

// Show sets the condition ScalingActive: whether the autoscaler has the data for its decisions. Without an autoscaler the condition is
// removed.
func (s Scaling) Show(list *[]metav1.Condition, terminating bool, generation int64, now time.Time) {
	const kind = v1alpha1.ConditionScalingActive
	if s.Spec == nil || terminating {
		meta.RemoveStatusCondition(list, kind)
		return
	}
	c := metav1.Condition{Type: kind, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	switch {
	case s.Status == nil || s.Status.DesiredReplicas == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "AwaitingData", "the autoscaler has not computed the number of runners yet"
	case s.Status.Problem != "":
		c.Status, c.Reason = metav1.ConditionFalse, "NoData"
		c.Message = fmt.Sprintf("the number of runners does not fall below %d: %s", ptr.Deref(s.Status.DesiredReplicas, 0), s.Status.Problem)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "DemandKnown", "the number of runners follows the configured metrics"
	}
	meta.SetStatusCondition(list, c)
}
