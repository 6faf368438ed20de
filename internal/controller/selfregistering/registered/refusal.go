package registered

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
)

// reasonDeletionFails is the reason of a Runner's condition StuckTerminating. The condition is False for the first minute, and keeps since
// when the deletion fails for that time, also across a restart.
const reasonDeletionFails = "DeletionFails"

// RefusalIn is why the deletion of a Runner or its pod fails, as the Runner's conditions say.
func RefusalIn(conditions []metav1.Condition) removal.Refusal {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionStuckTerminating)
	if c == nil {
		return removal.Refusal{}
	}
	since := c.LastTransitionTime.Time
	if c.Status == metav1.ConditionTrue {
		since = since.Add(-removal.RefusedAfter)
	}
	return removal.Refusal{Why: c.Message, Since: since}
}

// ShowRefusal writes into a Runner's conditions why its deletion, or its pod's, fails; the zero value that it does not.
func ShowRefusal(conditions *[]metav1.Condition, r removal.Refusal, generation int64, now time.Time) {
	if r.Why == "" {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStuckTerminating)
		return
	}
	status := metav1.ConditionFalse
	if !now.Before(r.Due()) {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionStuckTerminating, Status: status, Reason: reasonDeletionFails, Message: r.Why,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}
