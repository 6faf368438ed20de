package runnerowner

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// guarded is a Backing whose removals fail with err.
type guarded struct {
	Backing
	err error
}

func (g *guarded) Remove(context.Context, Removal) (lifecycle.Answer, error) {
	return lifecycle.Answer{Verdict: lifecycle.Granted}, g.err
}

// reconcilerWith has what a removal needs.
func reconcilerWith(t *testing.T, backing Backing, now *time.Time) *Reconciler {
	t.Helper()
	metrics, err := newMetrics(prometheus.NewRegistry(), "test", newTracker(nil, nil, nil))
	require.NoError(t, err)
	return &Reconciler{kind: "test", metrics: metrics, options: Options{
		Backing: backing, Service: fixedPlaces{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return *now },
	}}
}

type fixedPlaces struct{ Service }

func (fixedPlaces) Place(string) registered.Place { return registered.Place{} }

// POOL-10, TEN-5: a deletion that the API server refuses shows in a condition, with the reason, a minute after the first attempt, whether
// GitHub has removed the registration or the runner has ended.
func TestRemove_TEN5_POOL10_ARefusedDeletionIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*registered.View)
		grant  bool
	}{
		"granted": {change: func(v *registered.View) { v.Unregistered = t0 }, grant: true},
		"ended":   {change: endedPod(0)},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := newState(t, func(o *Owner) { o.Desired = 0 })
			shown(s, "x", c.change)
			if c.grant {
				s.change("x", "", t0, func(m *member) { m.leave.Removal, m.leave.Why = lifecycle.RemovalGranted, lifecycle.ReasonScaleDown })
			}
			now, backing := t0, &guarded{err: errors.New(`admission webhook "guard.example" denied the request`)}
			r := reconcilerWith(t, backing, &now)
			stuck := func(at time.Time) string {
				w := s.makePlan(o, -1, at)
				found := meta.FindStatusCondition(conditionsOf(o, s.facts(o, w, at), at), v1alpha1.ConditionStuckTerminating)
				if found == nil {
					return ""
				}
				return found.Message
			}
			require.Equal(t, []string{"x"}, s.makePlan(o, -1, now).remove)
			r.remove(t.Context(), s, "x")
			now = t0.Add(30 * time.Second)
			r.remove(t.Context(), s, "x")
			due := t0.Add(removal.RefusedAfter)
			require.Empty(t, stuck(due.Add(-1)))
			next := s.makePlan(o, -1, now).plan.Next
			require.False(t, next.IsZero() || next.After(due), "a pass follows in time")
			require.Equal(t, `1 runner not deleted in time: x (its deletion fails: admission webhook "guard.example" denied the request)`, stuck(due))

			s.podSeen("x", s.members["x"].pod, due)
			require.NotEmpty(t, stuck(due), "an event of the pod hides nothing")
			backing.err = nil
			r.remove(t.Context(), s, "x")
			require.Empty(t, stuck(due), "it is deleted, and may take its time")
		})
	}
}

// POOL-10: what was deleted and does not go shows in time, whatever it has shown before: a busy runner after its grace period.
func TestMember_POOL10_WhatDoesNotGoIsSeenInTime(t *testing.T) {
	const grace = 6 * time.Hour
	deleted := func(v *registered.View) { v.Deleting, v.Deadline = t0, t0.Add(grace) }
	for name, c := range map[string]struct {
		change []func(*registered.View)
		due    time.Time
	}{
		"idle":                         {[]func(*registered.View){deleted}, t0.Add(stuckAfter)},
		"busy":                         {[]func(*registered.View){busyPod, deleted}, t0.Add(grace + stuckAfter)},
		"ended":                        {[]func(*registered.View){endedPod(0), deleted}, t0.Add(stuckAfter)},
		"not deleted":                  {nil, time.Time{}},
		"ended, and not deleted":       {[]func(*registered.View){endedPod(0)}, time.Time{}},
		"unregistered and not deleted": {[]func(*registered.View){func(v *registered.View) { v.Unregistered = t0 }}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := newState(t, func(o *Owner) { o.Desired = 0 })
			shown(s, "x", append(c.change, func(v *registered.View) { v.Node, v.Finalizers = "node-a", "example.com/other" })...)
			stuck := func(at time.Time) []string { return s.facts(o, s.makePlan(o, -1, at), at).stuck }
			if c.due.IsZero() {
				require.Empty(t, stuck(t0.Add(24*time.Hour)))
				return
			}
			require.Empty(t, stuck(c.due.Add(-1)))
			last := s.makePlan(o, -1, c.due.Add(-1)).plan.Next
			require.Equal(t, c.due, last, "a pass follows in time")
			require.Equal(t, []string{"x on node node-a (held by example.com/other)"}, stuck(c.due))
		})
	}
}

// The API server rejects an Event whose note is longer than 1024 bytes.
func TestTurns_POOL10_AnEventNamesAsManyReasonsAsFit(t *testing.T) {
	s, o := newState(t)
	f := facts{wish: wishOf(o)}
	for range namesListed {
		f.stuck = append(f.stuck, removal.Stuck{Name: strings.Repeat("x", 63), Refusal: strings.Repeat("y", 300)}.String())
	}
	recorder := events.NewFakeRecorder(10)
	(&eventWriter{recorder}).turned(s, nil, []metav1.Condition{*meta.FindStatusCondition(conditionsOf(o, f, t0), v1alpha1.ConditionStuckTerminating)})
	told := strings.TrimPrefix(await.Receive(t, recorder.Events, "an Event is recorded"), "Warning StuckTerminating ")
	require.Contains(t, told, "5 runners not deleted in time: xxx")
	require.LessOrEqual(t, len(told), 1024)
}

// EXCL-4, POOL-7: a lost runner that shows work is deleted with a proof alone. A grant without one, also one that is written on its pod, is
// followed by more questions, and RemovalBlocked says why there is no proof.
func TestMember_EXCL4_POOL7_ALostRunnerIsAskedAboutUntilThereIsAProof(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired = 0 })
	s.places = func(string) registered.Place { return registered.Place{Absent: t0.Add(-time.Hour)} }
	shown(s, "x", busyPod, func(v *registered.View) { v.Node, v.Unregistered = "node-a", t0 })
	now := t0
	asked := func(after time.Duration) {
		t.Helper()
		now = now.Add(after)
		w := s.makePlan(o, -1, now)
		require.Len(t, w.ask, 1)
		require.Empty(t, w.remove)
	}
	answer := func(a lifecycle.Answer) { s.answered("x", "pod-x", a, lifecycle.ReasonLost, now) }
	asked(0)
	answer(lifecycle.Answer{Detail: "GitHub does not respond"})
	blocked := meta.FindStatusCondition(conditionsOf(o, s.facts(o, s.makePlan(o, -1, now), now), now), v1alpha1.ConditionRemovalBlocked)
	require.NotNil(t, blocked)
	require.Contains(t, blocked.Message, "GitHub does not respond")

	asked(s.pace.First)
	answer(lifecycle.Answer{Verdict: lifecycle.Granted})
	asked(s.pace.Pending)
	answer(lifecycle.Answer{Verdict: lifecycle.Granted, Proof: "its node is gone"})
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, now).remove)
	reconcilerWith(t, &guarded{err: lifecycle.ErrVetoed}, &now).remove(t.Context(), s, "x")
	asked(s.pace.Pending)
	answer(lifecycle.Answer{Verdict: lifecycle.Granted, Proof: "its node is gone"})
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, now).remove)
}

// POOL-10: what a Runner's own controller says of its pod's deletion leads to a pass, and counts while the Runner is being deleted.
func TestMember_POOL10_ARefusalOfItsPodIsSeen(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired = 0 })
	shown(s, "x", func(v *registered.View) { v.Unregistered = t0 })
	seen := s.members["x"].Member
	seen.Deleting = t0
	s.memberSeen(seen, nil, t0)
	require.False(t, s.memberSeen(seen, nil, t0))
	seen.PodRefused = removal.Refusal{Why: "denied", Since: t0}
	require.True(t, s.memberSeen(seen, nil, t0))
	due := t0.Add(removal.RefusedAfter)
	require.Equal(t, due, s.makePlan(o, -1, t0).plan.Next)
	require.Equal(t, []string{"x (its deletion fails: denied)"}, s.facts(o, s.makePlan(o, -1, due), due).stuck)
}
