package runnerowner

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Desired is the number of runners that an owner should have: of its spec, or of the autoscaler's decision. Before the first decision
// nothing is removed: it is the minimum, or the number that exists.
func Desired(replicas *int32, autoscaling *v1alpha1.RunnerAutoscaling, decided *v1alpha1.AutoscalingStatus, existing int) int {
	if autoscaling == nil {
		return int(ptr.Deref(replicas, 1))
	}
	if decided != nil && decided.DesiredReplicas != nil {
		return int(min(*decided.DesiredReplicas, autoscaling.MaxReplicas))
	}
	return min(max(int(ptr.Deref(autoscaling.MinReplicas, 1)), existing), int(autoscaling.MaxReplicas))
}

// Limits are those of a roll, in runners, for a desired number.
func Limits(rollout v1alpha1.RunnerRollout, desired int) (surge, unavailable int) {
	scaled := func(value *intstr.IntOrString, standard intstr.IntOrString, up bool) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(value, standard)), desired, up)
		if err != nil { // the API server has refused what is neither
			n, _ = intstr.GetScaledValueFromIntOrPercent(&standard, desired, up)
		}
		return max(n, 0)
	}
	return scaled(rollout.MaxSurge, intstr.FromString("100%"), true), scaled(rollout.MaxUnavailable, intstr.FromInt32(0), false)
}

// StatusPatch is the merge patch that writes a status: all of it but the autoscaler's part, which is another's to write.
func StatusPatch(status any) ([]byte, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("encoding a status: %w", err)
	}
	delete(fields, "autoscaling")
	if _, has := fields["completeAt"]; !has {
		fields["completeAt"] = nil // evidence of a need removes it
	}
	return json.Marshal(map[string]any{"status": fields})
}
