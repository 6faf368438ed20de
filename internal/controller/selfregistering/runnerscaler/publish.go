package runnerscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling/selfregistering"
)

// Reasons of Events.
const (
	reasonScaledUp   = "ScaledUp"
	reasonScaledDown = "ScaledDown"
	reasonBlind      = "ScalingInactive"
	reasonSees       = "ScalingActive"
)

const (
	// writersMost is how many writes are under way at once.
	writersMost = 8
	// repairAfter is when a status that shows something else than was written is written again: until then the cache may lag.
	repairAfter = 30 * time.Second
)

// change is one owner's decision.
type change struct {
	owner  *owner
	result selfregistering.Result
}

func (c change) status() *v1alpha1.AutoscalingStatus {
	status := &v1alpha1.AutoscalingStatus{
		DesiredReplicas: ptr.To(int32(c.result.State.Desired)),
		ScaledAt:        moment(c.result.State.ScaledAt), LastScaleDownTime: moment(c.result.State.LastScaleDown),
		Queued: int32(c.result.Queued), Running: int32(c.result.Running),
		Schedule: c.result.Schedule, Problem: c.result.Problem,
	}
	return status
}

// moment is one as the API keeps it, in whole seconds.
func moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at.Truncate(time.Second)}
}

// publish writes what has changed: all that has happened to an owner since the last pass in one write, and nothing where nothing
// has. Writes do not wait for each other, and one that fails is made good by the next pass.
func (s *Scaler) publish(ctx context.Context, now time.Time, todo []change) {
	slots := make(chan struct{}, writersMost)
	var writers sync.WaitGroup
	for _, c := range todo {
		o, status := c.owner, c.status()
		lost := !equality.Semantic.DeepEqual(o.status, o.memory.written) && now.Sub(o.memory.wroteAt) > repairAfter
		if equality.Semantic.DeepEqual(status, o.memory.written) && !lost {
			continue
		}
		slots <- struct{}{}
		writers.Go(func() {
			defer func() { <-slots }()
			if s.write(ctx, o, status) {
				former := o.memory.written
				o.memory.written, o.memory.wroteAt = status, now
				s.tell(c, former, status)
			}
		})
	}
	writers.Wait()
}

// clear removes the status of owners that no longer autoscale.
func (s *Scaler) clear(ctx context.Context, owners []owner) {
	for i := range owners {
		if o := &owners[i]; o.scaling == nil && !o.deleted && o.memory.written != nil && s.write(ctx, o, nil) {
			o.memory.written = nil
		}
	}
}

// write patches status.autoscaling, and nothing else of the object: other parts of the status have other writers. An owner that is gone is
// skipped (A.6: in the peer it stalled all others).
func (s *Scaler) write(ctx context.Context, o *owner, status *v1alpha1.AutoscalingStatus) bool {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	body, err := patchOf(status)
	if err == nil {
		target := o.object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one is one
		err = s.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	}
	switch {
	case err == nil:
		s.metrics.writes.WithLabelValues("written").Inc()
	case apierrors.IsNotFound(err):
		s.metrics.writes.WithLabelValues("gone").Inc()
	default:
		s.metrics.writes.WithLabelValues("failed").Inc()
		s.options.Log.Warn("writing the desired number of runners failed; the next pass retries", "kind", o.kind, "name", o.name, "error", err)
	}
	return err == nil
}

// patchOf is a merge patch that says every field, so that none of a former one is left.
func patchOf(status *v1alpha1.AutoscalingStatus) ([]byte, error) {
	var autoscaling any
	if status != nil {
		orNull := func(text string) any {
			if text == "" {
				return nil
			}
			return text
		}
		autoscaling = map[string]any{
			"desiredReplicas": status.DesiredReplicas, "scaledAt": status.ScaledAt, "lastScaleDownTime": status.LastScaleDownTime,
			"queued": status.Queued, "running": status.Running, "schedule": orNull(status.Schedule), "problem": orNull(status.Problem),
		}
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"autoscaling": autoscaling}})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return body, nil
}

// tell says in Events, and in the log, what was done and why.
func (s *Scaler) tell(c change, former, status *v1alpha1.AutoscalingStatus) {
	o := c.owner
	if former == nil {
		former = &v1alpha1.AutoscalingStatus{}
	}
	from, to := o.runners.Exist, c.result.State.Desired
	if former.DesiredReplicas != nil {
		from = int(*former.DesiredReplicas)
	}
	if from != to {
		reason, direction := reasonScaledUp, "up"
		if to < from {
			reason, direction = reasonScaledDown, "down"
		}
		s.metrics.decisions.WithLabelValues(o.kind, direction).Inc()
		s.options.Log.Info("runners scaled", "kind", o.kind, "name", o.name, "from", from, "to", to, "why", c.result.Reason)
		s.recorder.Eventf(o.object, nil, corev1.EventTypeNormal, reason, "Scale", "Scaled from %d to %d runners: %s", from, to, c.result.Reason)
	}
	switch {
	case status.Problem != "" && status.Problem != former.Problem:
		s.recorder.Eventf(o.object, nil, corev1.EventTypeWarning, reasonBlind, "Scale", "Not scaling below %d runners: %s", to, status.Problem)
	case status.Problem == "" && former.Problem != "":
		s.recorder.Eventf(o.object, nil, corev1.EventTypeNormal, reasonSees, "Scale", "Autoscaling has complete data again")
	}
}
