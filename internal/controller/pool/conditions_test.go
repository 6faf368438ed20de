package pool

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func poolFor(change ...func(*v1alpha1.RunnerPoolSpec)) *v1alpha1.RunnerPool {
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "uid", Generation: 3}}
	pool.Spec.Replicas = ptr.To[int32](4)
	for _, c := range change {
		c(&pool.Spec)
	}
	return pool
}

func scaling(most int32) func(*v1alpha1.RunnerPoolSpec) {
	return func(s *v1alpha1.RunnerPoolSpec) {
		s.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MaxReplicas: ptr.To(most)}
	}
}

func messageOf(list []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(list, kind); c != nil {
		return c.Message
	}
	return ""
}

// recordedEvents keeps Events as text: kind, reason, action, the pod they are about, and the note.
type recordedEvents struct{ events []string }

func (r *recordedEvents) Eventf(_, related runtime.Object, kind, reason, action, note string, args ...any) {
	about := "-"
	if pod, ok := related.(*corev1.Pod); ok {
		about = pod.Name
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s %s %s", kind, reason, action, about, fmt.Sprintf(note, args...)))
}

func recorded() (*recordedEvents, *eventWriter) {
	recorder := &recordedEvents{}
	return recorder, &eventWriter{recorder: recorder, object: func(types.NamespacedName) runtime.Object { return poolFor() }}
}

type stages map[lifecycle.Stage]int

func TestConditions_Saturated(t *testing.T) {
	waits := func(n int) Decision { return Decision{Demand: &Demand{Queued: n}} }
	for name, c := range map[string]struct {
		pool     *v1alpha1.RunnerPool
		of       stages
		decision Decision
		gone     bool
		reason   string // when it is on
		message  string
	}{
		"nothing is known":     {pool: poolFor(), of: stages{lifecycle.StageBusy: 4}},
		"nobody waits":         {pool: poolFor(), of: stages{lifecycle.StageBusy: 4}, decision: waits(0)},
		"all replicas busy":    {pool: poolFor(), of: stages{lifecycle.StageBusy: 4}, decision: waits(1), reason: "AtCapacity", message: "At capacity: 4 of 4 runners busy, 1 job queued. To run more at once: `bullpen pool scale pool --replicas N`."},
		"one is idle":          {pool: poolFor(), of: stages{lifecycle.StageBusy: 3, lifecycle.StageIdle: 1}, decision: waits(1)},
		"one is about to be":   {pool: poolFor(), of: stages{lifecycle.StageBusy: 3, lifecycle.StageStarting: 1}, decision: waits(1)},
		"more wait than that":  {pool: poolFor(), of: stages{lifecycle.StageBusy: 3, lifecycle.StageStarting: 1}, decision: waits(2), reason: "AtCapacity", message: "At capacity: 4 of 4 runners exist (3 busy), 2 jobs queued."},
		"one is being created": {pool: poolFor(), of: stages{lifecycle.StageBusy: 3}, decision: waits(9)},
		"it can grow":          {pool: poolFor(scaling(10)), of: stages{lifecycle.StageBusy: 4}, decision: waits(9)},
		"at the maximum":       {pool: poolFor(scaling(4)), of: stages{lifecycle.StageBusy: 3, lifecycle.StageTerminating: 1}, decision: waits(9), reason: "AtCapacity", message: "At capacity: 4 of 4 runners exist (3 busy), 9 jobs queued. To run more at once: `bullpen pool set pool --max-replicas N`."},
		"a terminating one":    {pool: poolFor(), of: stages{lifecycle.StageBusy: 4}, decision: waits(9), gone: true},
	} {
		f := facts{wish: lifecycle.Wish{Desired: 4, Terminating: c.gone}, counts: counts{of: c.of}, decision: c.decision}
		list := conditionsOf(c.pool, nil, f, t0).list
		require.Equal(t, c.reason != "", meta.IsStatusConditionTrue(list, v1alpha1.ConditionSaturated), name)
		if c.reason != "" {
			require.Equal(t, c.reason, meta.FindStatusCondition(list, v1alpha1.ConditionSaturated).Reason, name)
			require.Contains(t, messageOf(list, v1alpha1.ConditionSaturated), c.message, name)
		}
	}
}

// POOL-13: what keeps a pool whose controller is gone is shown before that happens, and while it drains.
func TestConditions_POOL13_SayInAdvanceWhatADeletionWaitsFor(t *testing.T) {
	pool := poolFor()
	require.Nil(t, meta.FindStatusCondition(conditionsOf(pool, nil, facts{}, t0).list, v1alpha1.ConditionDeletionProtected), "nothing holds it yet")
	pool.Finalizers = []string{"example.com/other", runnerpod.FinalizerPoolDrain}
	for _, terminating := range []bool{false, true} {
		list := conditionsOf(pool, nil, facts{wish: lifecycle.Wish{Terminating: terminating}}, t0).list
		require.True(t, meta.IsStatusConditionTrue(list, v1alpha1.ConditionDeletionProtected))
		message := messageOf(list, v1alpha1.ConditionDeletionProtected)
		require.Contains(t, message, runnerpod.FinalizerPoolDrain)
		require.Contains(t, message, "bullpen uninstall --runner-namespace "+pool.Namespace)
		pool.Finalizers = nil
		require.Nil(t, meta.FindStatusCondition(conditionsOf(pool, list, facts{}, t0).list, v1alpha1.ConditionDeletionProtected), "restored without it")
		pool.Finalizers = []string{runnerpod.FinalizerPoolDrain}
	}
}

func TestConditions_StarvedSaysWhatIsInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		facts   facts
		message string
	}{
		"nothing":    {},
		"scheduler":  {facts{counts: counts{unplaced: 2, schedulerSays: "Unschedulable: 0/3 nodes are available"}}, "2 runners cannot be scheduled: Unschedulable: 0/3 nodes are available"},
		"starts":     {facts{plan: lifecycle.Plan{Refused: 5}, counts: counts{startsSay: "node n1 has 4 of 4 starts"}}, "5 more runners cannot start now: node n1 has 4 of 4 starts"},
		"for no say": {facts{plan: lifecycle.Plan{Refused: 1}}, "1 more runner cannot start now"},
		"the fleet":  {facts{decision: Decision{Short: "the fleet has 16Gi left"}}, "the fleet has 16Gi left"},
		"draining":   {facts{wish: lifecycle.Wish{Terminating: true}, counts: counts{unplaced: 2}}, ""},
	} {
		list := conditionsOf(poolFor(), nil, c.facts, t0).list
		require.Equal(t, c.message != "", meta.IsStatusConditionTrue(list, v1alpha1.ConditionStarved), name)
		require.Equal(t, c.message, messageOf(list, v1alpha1.ConditionStarved), name)
	}
}

// The scheduler's word on a pod reaches the condition, and leaves it with the last such pod.
func TestCounts_RunnersThatNoNodeTakes(t *testing.T) {
	s := newTracker().pool(key)
	pending := func(name, message string) podView {
		return named(name, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
			if message != "" {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
			}
		})
	}
	s.podSeen(pending("pool-a", ""), t0)
	require.Zero(t, s.counts("hash").unplaced, "the scheduler has not tried yet")
	require.True(t, s.podSeen(pending("pool-a", "no room"), t0), "the first turns the condition")
	require.False(t, s.podSeen(pending("pool-a", "no room yet"), t0), "what is said of it later starts no pass")
	s.podSeen(pending("pool-b", "no room at all"), t0)
	c := s.counts("hash")
	require.Equal(t, 2, c.unplaced)
	require.Equal(t, "Unschedulable: no room at all", c.schedulerSays)
	s.podSeen(named("pool-a"), t0)
	s.podGone("pool-b", "uid-pool-b", t0)
	require.Zero(t, s.counts("hash").unplaced)
}

// A clock that was ahead, and was corrected, keeps no condition on until it has caught up.
func TestConditions_ATurnThatIsYetToComeHoldsNothing(t *testing.T) {
	on := facts{wish: wishFor(4), counts: counts{of: stages{lifecycle.StageBusy: 4}, unplaced: 1}}
	status, _ := statusOf(poolFor(), &v1alpha1.RunnerPoolStatus{}, on, t0.Add(24*time.Hour))
	require.True(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStarved))
	on.counts.unplaced = 0
	after, _ := statusOf(poolFor(), &status, on, t0)
	require.False(t, meta.IsStatusConditionTrue(after.Conditions, v1alpha1.ConditionStarved))
}

// P5: a condition that follows the load turns at most twice a minute, however often its cause does.
func TestConditions_P5_LoadTurnsThemAtMostTwiceAMinute(t *testing.T) {
	for _, on := range []facts{
		{wish: wishFor(4), counts: counts{of: stages{lifecycle.StageBusy: 4}}, decision: Decision{Demand: &Demand{Queued: 1}}},
		{wish: wishFor(4), counts: counts{of: stages{lifecycle.StageBusy: 4}, unplaced: 1}},
	} {
		off := on
		off.decision, off.counts.unplaced = Decision{}, 0
		pool, turns := poolFor(), 0
		var status v1alpha1.RunnerPoolStatus
		var look time.Time
		for i := range 600 {
			f := on
			if i%2 == 1 {
				f = off
			}
			before := status
			status, look = statusOf(pool, &before, f, t0.Add(time.Duration(i)*time.Second))
			if i > 1 && news(&before, &status) {
				turns++
			}
		}
		require.LessOrEqual(t, turns, 2*10)
		require.Greater(t, turns, 2)
		require.False(t, look.IsZero(), "its holder checks again when it may end")
		last := look
		status, look = statusOf(pool, &status, off, last)
		require.True(t, look.IsZero())
		require.False(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionSaturated))
		require.False(t, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionStarved))
	}
}

func TestConditions_CLAIM12_LabelConflictNamesTheOthers(t *testing.T) {
	f := facts{wish: wishFor(1), rivals: []rival{{"b", "linux-4"}, {"c", "linux-4"}}}
	list := conditionsOf(poolFor(), nil, f, t0).list
	require.Contains(t, messageOf(list, v1alpha1.ConditionLabelConflict), "pool b also has label linux-4, pool c also has label linux-4. Jobs with this label stay queued")
	f.rivals = nil
	list = conditionsOf(poolFor(), list, f, t0).list
	require.True(t, meta.IsStatusConditionFalse(list, v1alpha1.ConditionLabelConflict), "healed at once")
	require.Nil(t, meta.FindStatusCondition(conditionsOf(poolFor(), nil, f, t0).list, v1alpha1.ConditionLabelConflict), "what was never on is not mentioned")
	for i := range 9 {
		f.rivals = append(f.rivals, rival{fmt.Sprintf("p%d", i), "x"})
	}
	require.Contains(t, messageOf(conditionsOf(poolFor(), nil, f, t0).list, v1alpha1.ConditionLabelConflict), "p4 also has label x, and 4 more. ")
}

func TestConditions_ScalingActive(t *testing.T) {
	of := func(pool *v1alpha1.RunnerPool, before []metav1.Condition, d Decision) *metav1.Condition {
		return meta.FindStatusCondition(conditionsOf(pool, before, facts{wish: wishFor(7), decision: d}, t0).list, v1alpha1.ConditionScalingActive)
	}
	pool := poolFor(scaling(9))
	require.Equal(t, metav1.ConditionUnknown, of(pool, nil, Decision{}).Status, "nothing for a person to do")
	c := of(pool, nil, Decision{Decided: true})
	require.Equal(t, metav1.ConditionTrue, c.Status)
	require.Equal(t, metav1.ConditionTrue, of(pool, []metav1.Condition{*c}, Decision{}).Status, "a restart turns nothing")
	c = of(pool, []metav1.Condition{*c}, Decision{Decided: true, Blind: "the server does not answer"})
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, "the pool size stays at 7: the server does not answer", c.Message)
	require.Nil(t, of(poolFor(), []metav1.Condition{*c}, Decision{}), "a pool of a fixed number has no such condition")
}

// A new pool is in no answer yet, and a server that is rolled misses one: no Event, no turn, until it lasts.
func TestConditions_ScalingActiveTurnsWhenNothingIsSeenForAWhile(t *testing.T) {
	pool := poolFor(scaling(9))
	blip := facts{wish: wishFor(7), decision: Decision{Decided: true, Blind: "refused", BlindSince: t0}}
	at := func(before []metav1.Condition, now time.Time) (*conditions, metav1.Condition) {
		c := conditionsOf(pool, before, blip, now)
		return c, *meta.FindStatusCondition(c.list, v1alpha1.ConditionScalingActive)
	}
	recorder, writer := recorded()
	for before, want := range map[*facts]metav1.ConditionStatus{
		nil:                                 metav1.ConditionUnknown,
		{decision: Decision{Decided: true}}: metav1.ConditionTrue,
	} {
		var list []metav1.Condition
		if before != nil {
			list = conditionsOf(pool, nil, *before, t0).list
		}
		c, active := at(list, t0.Add(blindHold-time.Second))
		require.Equal(t, want, active.Status)
		require.Equal(t, t0.Add(blindHold), c.look)
		writer.turned(key, "7", list, c.list)
		require.Empty(t, recorder.events)
		_, active = at(c.list, t0.Add(blindHold))
		require.Equal(t, metav1.ConditionFalse, active.Status)
		require.Equal(t, "the pool size stays at 7: refused", active.Message)
		blip.decision.Blind = "timed out"
		_, active = at([]metav1.Condition{active}, t0.Add(time.Second))
		require.Equal(t, "the pool size stays at 7: timed out", active.Message, "the message is kept up to date")
		blip.decision.Blind = "refused"
	}
}

type scalerOf func(types.NamespacedName) Decision

func (s scalerOf) Decision(pool types.NamespacedName) Decision { return s(pool) }

// Names are used again: neither what was decided nor what was written down for a former pool is this one's.
func TestReconcile_SCALE3_ANameUsedAgainHasNoPast(t *testing.T) {
	pool := poolFor(scaling(9))
	r := &Reconciler{options: Options{Scaler: scalerOf(func(types.NamespacedName) Decision {
		return Decision{Pool: "uid", Decided: true, Desired: 8}
	})}}
	require.Equal(t, 8, r.decision(pool).Desired)
	state := newTracker().pool(key)
	state.refer(pool)
	state.statusWritten(&v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](8)}, t0)
	state.refer(pool)
	require.EqualValues(t, 8, *state.lastStatus(pool).DesiredReplicas)

	again := poolFor(scaling(9))
	again.UID = "another"
	require.Equal(t, Decision{}, r.decision(again))
	state.refer(again)
	require.Nil(t, state.lastStatus(again).DesiredReplicas)
}

func TestConditions_DrainingGoesWhenAPoolIsNotBeingDeleted(t *testing.T) {
	f := facts{wish: lifecycle.Wish{Terminating: true}, counts: counts{of: stages{lifecycle.StageBusy: 2}}}
	list := conditionsOf(poolFor(), nil, f, t0).list
	require.Contains(t, messageOf(list, v1alpha1.ConditionDraining), "waits for 2 busy runners")
	require.Empty(t, messageOf(conditionsOf(poolFor(), list, facts{}, t0).list, v1alpha1.ConditionDraining))
}

// The autoscaler's decision outlives the controller: the number, and when it was last lowered (SCALE-3).
func TestStatusOf_SCALE3_RemembersTheNumberAndTheLastStepDown(t *testing.T) {
	pool, before := poolFor(scaling(9)), v1alpha1.RunnerPoolStatus{}
	f := facts{wish: wishFor(7), decision: Decision{Decided: true, LastScaleDown: t0.Add(time.Millisecond)}}
	status, _ := statusOf(pool, &before, f, t0)
	require.EqualValues(t, 7, *status.DesiredReplicas)
	require.Equal(t, t0, status.LastScaleDownTime.Time)
	f.decision = Decision{}
	status, _ = statusOf(pool, &status, f, t0)
	require.Equal(t, t0, status.LastScaleDownTime.Time, "an autoscaler that has just started does not forget it")
	require.False(t, news(&before, &v1alpha1.RunnerPoolStatus{DesiredReplicas: ptr.To[int32](9)}), "a number is no news (P5)")
}

func TestTurned_OneEventForEachTurn(t *testing.T) {
	recorder, writer := recorded()
	on := facts{wish: wishFor(4), counts: counts{of: stages{lifecycle.StageBusy: 4}, unplaced: 1, schedulerSays: "no room"}, rivals: []rival{{"b", "x"}}}
	first := conditionsOf(poolFor(), nil, on, t0).list
	writer.turned(key, "7", nil, first)
	writer.turned(key, "7", first, conditionsOf(poolFor(), first, on, t0.Add(time.Second)).list)
	require.Equal(t, []string{
		"Warning Starved Unschedulable - 1 runner cannot be scheduled: no room",
		"Warning LabelConflict SameLabel - pool b also has label x. Jobs with this label stay queued. Change the label of one of the pools, or delete one.",
	}, recorder.events)
	recorder.events = nil
	writer.turned(key, "7", first, conditionsOf(poolFor(), first, facts{wish: wishFor(4)}, t0.Add(time.Hour)).list)
	require.Equal(t, []string{
		"Normal NoLongerStarved RunnersCanStart - all desired runners can start",
		"Normal LabelConflictResolved NoConflict - no other pool has this label",
	}, recorder.events)

	recorder.events = nil
	scaled := poolFor(scaling(9))
	active := conditionsOf(scaled, nil, facts{decision: Decision{Decided: true}}, t0).list
	writer.turned(key, "7", nil, active)
	require.Empty(t, recorder.events, "that all is well from the start is no event")
	blind := conditionsOf(scaled, active, facts{decision: Decision{Blind: "no server"}}, t0).list
	writer.turned(key, "7", active, blind)
	writer.turned(key, "7", blind, active)
	require.Equal(t, []string{
		"Warning ScalingInactive NoData - the pool size stays at 0: no server",
		"Normal ScalingActive DemandKnown - the pool size follows the job queue",
	}, recorder.events)
}

// One Event per reason and batch, in the words of the plan: for a time-out those of the scheduler or the kubelet.
func TestAsked_OneEventPerReasonAndBatch(t *testing.T) {
	recorder, writer := recorded()
	var asks []lifecycle.Action
	var answers []lifecycle.Answer
	ask := func(n int, reason lifecycle.Reason, detail string, answer lifecycle.Answer) {
		for i := range n {
			asks = append(asks, lifecycle.Action{Runner: lifecycle.Runner{Name: fmt.Sprintf("%s-%d", reason, i)}, Reason: reason, Detail: detail})
			answers = append(answers, answer)
		}
	}
	granted := lifecycle.Answer{Verdict: lifecycle.Granted}
	ask(2, lifecycle.ReasonUnschedulable, "no node has taken it for 15m0s: 0/3 nodes are available: 3 Insufficient cpu", granted)
	ask(7, lifecycle.ReasonIdleTimeout, "it has been idle for 12h0m0s", granted)
	ask(1, lifecycle.ReasonNodeCordoned, "node n1 is cordoned", lifecycle.Answer{Verdict: lifecycle.Busy, Detail: "it has a job for acme"})
	ask(1, lifecycle.ReasonMaxAge, "it is 25h0m0s old", lifecycle.Answer{Verdict: lifecycle.Unknown, Detail: "no database"})
	writer.asked(key, asks, answers)
	require.Equal(t, []string{
		"Warning Unschedulable Remove Unschedulable-0 Removing Unschedulable-0, Unschedulable-1: no node has taken it for 15m0s: 0/3 nodes are available: 3 Insufficient cpu",
		"Normal IdleTimeout Remove IdleTimeout-0 Removing IdleTimeout-0, IdleTimeout-1, IdleTimeout-2, IdleTimeout-3, IdleTimeout-4 and 2 more: it has been idle for 12h0m0s",
		"Normal NodeCordoned Keep NodeCordoned-0 Keeping NodeCordoned-0: node n1 is cordoned; it has a job for acme",
		"Warning FenceUnknown Keep MaxAge-0 Keeping MaxAge-0, because it is unknown whether they are busy: it is 25h0m0s old; no database",
	}, recorder.events)
	recorder.events = nil
	writer.createFailed(key, errors.New("creating pod x: exceeded quota\nand more"))
	require.Equal(t, []string{"Warning CreateFailed Create - creating pod x: exceeded quota"}, recorder.events)
}

// Users filter Events by reason: one about the end of a problem must not have the problem's name.
func TestTurns_AnEndNeverHasTheNameOfAProblem(t *testing.T) {
	problems := map[string]bool{}
	for _, turn := range turns {
		problems[turn.begins] = true
	}
	for kind, turn := range turns {
		require.False(t, problems[turn.ends], kind)
		if turn.bad == metav1.ConditionTrue {
			require.NotEqual(t, kind, turn.ends)
		}
	}
}
