package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// How often the status of a pool is written. The bound is in time and not in runners: kubectl, the console and `bullpen status` show these
// numbers, and a bound in runners leaves them wrong for as long as no runner is created. A busy pool's changes share a write (P5).
const (
	statusEvery   = time.Second     // news, such as a condition that turns
	statusNumbers = 2 * time.Second // what differs in its numbers only
)

// statusWriter remembers what was written, because the cache shows it late.
type statusWriter struct {
	written *v1alpha1.RunnerPoolStatus
	at      time.Time
}

// counts are the runners of a pool by stage, and what explains them.
type counts struct {
	of       map[lifecycle.Stage]int
	unsure   int    // runners that should go, and of which the fence cannot say whether they work
	blocked  string // why, of the last one of them
	create   string // why creations fail
	outdated int    // runners that a roll will replace
	versions versions

	unplaced      int    // runners that no node takes
	schedulerSays string // of the last one of them
	startsSay     string // what holds back creations that the plan has refused
	stuck         int    // deleted pods that do not go (POOL-10)
	stuckFew      []removal.Stuck
}

func (s *poolState) counts(hash string) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := counts{
		of: map[lifecycle.Stage]int{}, create: s.createSays, outdated: s.runners.Outdated(hash), versions: s.versions,
		unplaced: len(s.unplaced), schedulerSays: s.schedulerSays, startsSay: s.startsSay,
	}
	c.stuckFew, c.stuck = s.stuckNow()
	for _, stage := range lifecycle.Stages() {
		c.of[stage] = s.runners.Count(stage)
	}
	if c.unsure = len(s.unsure); c.unsure > 0 {
		c.blocked = s.fenceSays
	}
	return c
}

// statusOf computes a pool's status, and when it may change although nothing else does. The conditions keep the times of
// those written before.
func statusOf(pool *v1alpha1.RunnerPool, before *v1alpha1.RunnerPoolStatus, f facts, now time.Time) (status v1alpha1.RunnerPoolStatus, look time.Time) {
	of := f.counts.of
	f.newTemplate = before.TemplateHash != f.wish.TemplateHash
	c := conditionsOf(pool, before.Conditions, f, now)
	status = v1alpha1.RunnerPoolStatus{
		ObservedGeneration: pool.Generation,
		Replicas:           int32(of[lifecycle.StageStarting] + of[lifecycle.StageIdle] + of[lifecycle.StageBusy] + of[lifecycle.StageTerminating]),
		DesiredReplicas:    ptr.To(int32(f.wish.Desired)),
		LastScaleDownTime:  before.LastScaleDownTime,
		ReadyReplicas:      int32(of[lifecycle.StageIdle]),
		Selector:           runnerpod.LabelPool + "=" + pool.Name,
		Starting:           int32(of[lifecycle.StageStarting]),
		Idle:               int32(of[lifecycle.StageIdle]),
		Busy:               int32(of[lifecycle.StageBusy]),
		Terminating:        int32(of[lifecycle.StageTerminating]),
		Finished:           int32(of[lifecycle.StageFinished]),
		TemplateHash:       f.wish.TemplateHash,
		Conditions:         c.list,
	}
	if at := f.decision.LastScaleDown; !at.IsZero() {
		status.LastScaleDownTime = ptr.To(metav1.NewTime(at.Truncate(time.Second)))
	}
	return status, c.look
}

// shows keeps what the conditions say for the metrics.
func (s *poolState) shows(conditions []metav1.Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saturated = meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionSaturated)
	s.starved = meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStarved)
}

// short says which of the two conditions a pool has.
func (s *poolState) short() (saturated, starved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saturated, s.starved
}

// writeStatus writes the status if it has changed and may be written now; otherwise it says when it may.
func (r *Reconciler) writeStatus(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState, status v1alpha1.RunnerPoolStatus) (time.Duration, error) {
	before := state.lastStatus(pool)
	if equality.Semantic.DeepEqual(*before, status) {
		return 0, nil
	}
	if wait := state.statusDue(before, &status, r.now()); wait > 0 {
		return wait, nil
	}
	// All of it, and not the difference: that would leave out every number that has always been 0, and show blanks.
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return 0, fmt.Errorf("encoding the status of %s: %w", pool.Name, err)
	}
	target := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
	if err := r.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return 0, client.IgnoreNotFound(fmt.Errorf("writing the status of %s: %w", pool.Name, err))
	}
	r.metrics.statusWrites.WithLabelValues(pool.Name).Inc()
	r.events.turned(state.key, target.ResourceVersion, before.Conditions, status.Conditions)
	state.statusWritten(&status, r.now())
	return 0, nil
}

// lastStatus is what we wrote last, or what the pool had when we first saw it.
func (s *poolState) lastStatus(pool *v1alpha1.RunnerPool) *v1alpha1.RunnerPoolStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.written == nil {
		s.status.written = pool.Status.DeepCopy()
	}
	return s.status.written
}

// statusDue says how long a status must wait to be written.
func (s *poolState) statusDue(before, after *v1alpha1.RunnerPoolStatus, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := statusNumbers
	if news(before, after) {
		every = statusEvery
	}
	if s.status.at.IsZero() {
		return 0
	}
	return max(0, every-now.Sub(s.status.at))
}

// news is what a person waits for: a new generation or template, a condition that turns, and what is in the way of a
// change that is under way. Numbers are none, and neither are the words of a condition that stays as it is.
func news(before, after *v1alpha1.RunnerPoolStatus) bool {
	if before.ObservedGeneration != after.ObservedGeneration || before.TemplateHash != after.TemplateHash {
		return true
	}
	for _, c := range after.Conditions {
		old := meta.FindStatusCondition(before.Conditions, c.Type)
		if c.Type == v1alpha1.ConditionProgressing {
			if old != nil && old.Reason != c.Reason && c.Reason != "Scaling" && c.Reason != "UpToDate" {
				return true
			}
		} else if old == nil || old.Status != c.Status {
			return true
		}
	}
	return false
}

func (s *poolState) statusWritten(status *v1alpha1.RunnerPoolStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.written, s.status.at = status.DeepCopy(), now
}
