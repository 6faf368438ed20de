package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// leavingPod was deleted at t0 with that grace.
func leavingPod(grace time.Duration, change ...func(*corev1.Pod)) podView {
	return observe(idlePod(append(change, func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(metav1.NewTime(t0.Add(grace)))
		p.DeletionGracePeriodSeconds = ptr.To(int64(grace.Seconds()))
	})...))
}

func TestDue_POOL10_AJobHasItsGraceAndNothingElseHas(t *testing.T) {
	busy := func(p *corev1.Pod) { p.Labels[runnerpod.LabelOwner] = "acme" }
	endedAt := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			busy(p)
			p.Status.Phase = corev1.PodSucceeded
			done := ended(0)
			done.Terminated.FinishedAt = metav1.NewTime(at)
			p.Status.ContainerStatuses[1].State = done
		}
	}
	const hours = 6 * time.Hour
	for name, c := range map[string]struct {
		view podView
		want time.Time
	}{
		"not deleted":                      {observe(idlePod()), time.Time{}},
		"busy, deleted by somebody":        {leavingPod(hours, busy), t0.Add(hours + stuckSlack)},
		"idle, stops at once":              {leavingPod(hours), t0.Add(poolspec.LeaveTimeout)},
		"idle, with a short grace":         {leavingPod(30 * time.Second), t0.Add(30*time.Second + stuckSlack)},
		"ended before it was deleted":      {leavingPod(0, endedAt(t0.Add(-time.Hour))), t0.Add(stuckSlack)},
		"its job has ended in its grace":   {leavingPod(hours, endedAt(t0.Add(time.Hour))), t0.Add(time.Hour + stuckSlack)},
		"its job has used its whole grace": {leavingPod(hours, endedAt(t0.Add(hours+time.Second))), t0.Add(hours + stuckSlack)},
	} {
		m := member{observed: true, view: c.view}
		require.Equal(t, c.want, m.due(), name)
		m.gone = true
		require.Zero(t, m.due(), name)
	}
	over := member{observed: true, view: leavingPod(hours, busy), over: "its job has completed"}
	require.Equal(t, t0.Add(removal.ProvenGrace*time.Second+stuckSlack), over.due(), "TEN-5: what it has hours for is over")
}

// A stuck pod is found by one pass at the right time; it counts until it is gone, and has one Event.
func TestPlan_POOL10_APodThatDoesNotGoIsSeenInTime(t *testing.T) {
	tr := newTracker()
	s, names := tr.pool(key), counter()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(stageCollector{tr}))
	gauge := func() string {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "bullpen_runnerpool_stuck_terminating" {
				return fmt.Sprint(family.Metric[0].GetGauge().GetValue())
			}
		}
		return "none"
	}
	busy := func(p *corev1.Pod) { p.Labels[runnerpod.LabelOwner] = "acme" }
	pod := idlePod(busy)
	s.podSeen(observe(pod), t0)
	require.Zero(t, s.plan(wishFor(1), names, 10, t0).plan.Next)
	held := leavingPod(2*time.Hour, busy, func(p *corev1.Pod) { p.Finalizers = []string{runnerpod.FinalizerSandbox, "example.com/other"} })
	require.True(t, s.podSeen(held, t0), "it stays busy, and a pass must follow at the end of its grace")
	due := t0.Add(2*time.Hour + stuckSlack)
	w := s.plan(wishFor(1), names, 10, t0)
	require.Equal(t, due, w.plan.Next)
	w = s.plan(wishFor(1), names, 10, due.Add(-time.Second))
	require.Empty(t, w.stuck, "its grace has not passed")
	require.Zero(t, s.counts("hash").stuck)

	w = s.plan(wishFor(1), names, 10, due)
	require.Len(t, w.stuck, 1)
	require.Equal(t, "pool-aaaaaaaa on node node (held by bullpen.dev/vm-cleanup, example.com/other)", w.stuck[0].String())
	require.True(t, w.plan.Next.IsZero(), "and there is no more to wait for")
	require.Equal(t, "1", gauge())
	s.podSeen(held, due)
	require.Empty(t, s.plan(wishFor(1), names, 10, due.Add(time.Hour)).stuck, "told once")
	require.Equal(t, 1, s.counts("hash").stuck)

	s.podGone(held.name, held.uid, due.Add(2*time.Hour))
	require.Zero(t, s.counts("hash").stuck)
	require.Equal(t, "0", gauge())
}

func TestStuck_POOL10_AFewAreNamedAndTheRestCounted(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	for i := range 8 {
		v := leavingPod(time.Duration(i)*time.Second, func(p *corev1.Pod) { p.Spec.NodeName = "" })
		v.name, v.uid = fmt.Sprintf("pool-%d", i), fmt.Sprintf("uid-%d", i)
		s.podSeen(v, t0)
	}
	w := s.plan(wishFor(0), names, 10, t0.Add(3*time.Second+stuckSlack))
	require.Equal(t, []removal.Stuck{{Name: "pool-0", UID: "uid-0"}, {Name: "pool-1", UID: "uid-1"}, {Name: "pool-2", UID: "uid-2"}, {Name: "pool-3", UID: "uid-3"}}, w.stuck)
	require.Equal(t, t0.Add(4*time.Second+stuckSlack), w.plan.Next)
	w = s.plan(wishFor(0), names, 10, t0.Add(time.Hour))
	require.Len(t, w.stuck, 4, "those with an Event get no second one")
	c := s.counts("hash")
	require.Equal(t, 8, c.stuck)
	require.Len(t, c.stuckFew, namesInEvent)
	list := conditionsOf(poolFor(), nil, facts{wish: wishFor(0), counts: c}, t0).list
	require.Contains(t, messageOf(list, "StuckTerminating"), "8 pods not deleted in time: pool-0, pool-1, pool-2, pool-3, pool-4, and 3 more")

	recorder, writer := recorded()
	writer.stuck(key, s.stuckPods([]string{"pool-0", "pool-1", "pool-2", "pool-3", "pool-4", "pool-5", "pool-6"}))
	require.Len(t, recorder.events, namesInEvent+1, "no flood")
	require.Equal(t, "Warning StuckTerminating Delete pool-1 Not deleted in time: pool-1", recorder.events[1])
	require.Equal(t, "Warning StuckTerminating Delete - Not deleted in time: 2 more pods", recorder.events[5])
}
