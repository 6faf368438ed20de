package runnerowner

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newState is the state of an owner of two runners, for which nothing is done.
func newState(t *testing.T, change ...func(*Owner)) (*ownerState, *Owner) {
	t.Helper()
	o := &Owner{
		Object:  &v1alpha1.RunnerReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "own", UID: "owner"}},
		Desired: 2, TemplateHash: "a", Ephemeral: true, RecreationHold: 10 * time.Minute,
	}
	for _, c := range change {
		c(o)
	}
	tracked := newTracker(func(string) registered.Place { return registered.Place{} }, func() time.Time { return t0 }, func(*ownerState) {})
	s := tracked.owner(types.NamespacedName{Namespace: "ns", Name: "own"}, "owner")
	s.refer(o)
	return s, o
}

// shown lets the watch show a member with an idle pod.
func shown(s *ownerState, name string, change ...func(*registered.View)) {
	pod := &registered.View{
		Namespace: "ns", Name: name, UID: "pod-" + name, Owner: registered.Owner{UID: "uid-" + name}, TemplateHash: "a", Ephemeral: true,
		Created: t0, Placed: t0, Started: true, Running: true, Ready: true, ReadySince: t0, Registered: t0,
	}
	for _, c := range change {
		c(pod)
	}
	s.memberSeen(Member{Namespace: "ns", Name: name, UID: "uid-" + name, OwnerUID: "owner", TemplateHash: "a", Created: t0, Started: true}, pod, t0)
}

// podShown lets the watch show another state of a member's pod.
func podShown(s *ownerState, name string, change func(*registered.View)) {
	pod := *s.members[name].pod
	change(&pod)
	s.podSeen(name, &pod, t0)
}

func busyPod(v *registered.View) { v.Ready, v.Signs = false, lifecycle.Signs{NotReady: true} }

func endedPod(code int32) func(*registered.View) {
	return func(v *registered.View) {
		v.Running, v.Ready, v.Ended, v.End = false, false, true, registered.Ending{At: t0, Exited: true, ExitCode: code}
	}
}

// K 2.6: what was created and not shown yet counts, so that no pass makes it twice.
func TestPlan_RUN1_AnOwnCreationThatNobodyHasSeenCounts(t *testing.T) {
	s, o := newState(t)
	require.Equal(t, 2, s.makePlan(o, -1, t0).create)
	s.reserve([]string{"x", "y"}, "a", t0)
	require.Zero(t, s.makePlan(o, -1, t0).create, "their creation is under way")
	o.Desired = 0
	require.Empty(t, s.makePlan(o, -1, t0).ask, "and nothing is known of them: they are not chosen for removal")
	o.Desired = 2
	require.Equal(t, "created", s.createAnswered("x", "uid-x", nil, t0))
	require.Equal(t, "uncertain", s.createAnswered("y", "", context.DeadlineExceeded, t0))
	w := s.makePlan(o, -1, t0)
	require.Zero(t, w.create)
	require.Equal(t, []string{"y"}, w.again, "tried again under the same name")
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, t0.Add(observeWithin)).look, "and looked for past the cache when the watch is late")
	require.Equal(t, "refused", s.createAnswered("y", "", ErrTaken, t0))
	require.True(t, s.taken(t0)("y"), "what something else has is not tried again soon")
	require.Equal(t, 1, s.makePlan(o, -1, t0).create)
}

// K 4.4.
func TestPlan_NoMoreThanThereIsRoomFor(t *testing.T) {
	s, o := newState(t)
	w := s.makePlan(o, 1, t0)
	require.Equal(t, 1, w.create)
	require.Equal(t, 1, w.plan.Refused)
}

// POOL-6: the signs of a runner on a silent node may be outdated. One that shows no work is replaced elsewhere within the limits of a roll,
// and is removed with GitHub's consent as any other; one that shows work stays for as long as it does.
func TestPlan_POOL6_ARunnerOnASilentNodeIsReplacedElsewhere(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired, o.MaxSurge = 3, 3 })
	s.places = func(node string) registered.Place {
		if node == "silent" {
			return registered.Place{Unready: t0}
		}
		return registered.Place{}
	}
	shown(s, "x", func(v *registered.View) { v.Node = "silent" })
	shown(s, "y", func(v *registered.View) { v.Node = "silent" }, busyPod)
	shown(s, "z")
	w := s.makePlan(o, -1, t0.Add(nodes.UnreadyFor-1))
	require.Zero(t, w.create, "a node that is silent for a moment costs no runner")
	require.Empty(t, w.ask)
	require.Equal(t, t0.Add(nodes.UnreadyFor), w.plan.Next, "a pass follows then")
	w = s.makePlan(o, -1, t0.Add(nodes.UnreadyFor))
	require.Equal(t, 1, w.create, "its replacement first")
	require.Empty(t, w.ask)
	shown(s, "new")
	w = s.makePlan(o, -1, t0.Add(nodes.UnreadyFor))
	require.Zero(t, w.create)
	require.Len(t, w.ask, 1)
	require.Equal(t, "x", w.ask[0].Runner.Name)
	require.Equal(t, lifecycle.ReasonNodeNotReady, w.ask[0].Reason)
}

// F 2.8: a pod is a member's by its owner reference.
func TestTakePod_APodOfAnotherIsNoMembers(t *testing.T) {
	s, _ := newState(t)
	shown(s, "x", func(v *registered.View) { v.Owner.UID = "another" })
	require.Equal(t, 1, s.runners.Count(lifecycle.StageStarting), "it has no pod")
}

func TestRunner_RUN6_GitHubsWordHoldsUntilItShowsSomethingElse(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired = 0 })
	shown(s, "x")
	w := s.makePlan(o, -1, t0)
	require.Len(t, w.ask, 1)
	s.answered("x", "pod-x", lifecycle.Answer{Verdict: lifecycle.Busy}, lifecycle.ReasonScaleDown, t0)
	for _, later := range []time.Duration{0, time.Hour, 24 * time.Hour} {
		require.Empty(t, s.makePlan(o, -1, t0.Add(later)).ask, "9628bb29 after %s", later)
		require.Equal(t, 1, s.runners.Count(lifecycle.StageBusy))
	}
	s.podSeen("x", &registered.View{Name: "x", UID: "pod-x", TemplateHash: "a", Ephemeral: true, Started: true, Ended: true, End: registered.Ending{Exited: true}}, t0)
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, t0).remove)
}

func TestRunner_RUN6_AStaticOneIsAskedAboutOnceAMinute(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired, o.Ephemeral = 0, false })
	shown(s, "x", func(v *registered.View) { v.Ephemeral = false })
	require.Len(t, s.makePlan(o, -1, t0).ask, 1)
	s.answered("x", "pod-x", lifecycle.Answer{Verdict: lifecycle.Busy}, lifecycle.ReasonScaleDown, t0)
	w := s.makePlan(o, -1, t0.Add(59*time.Second))
	require.Empty(t, w.ask)
	require.Equal(t, t0.Add(time.Minute), w.plan.Next)
	require.Len(t, s.makePlan(o, -1, t0.Add(time.Minute)).ask, 1)
}

func TestRunner_RUN2_UnknownIsAskedAgainInTimeAndDeletesNothing(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.Desired = 0 })
	shown(s, "x")
	require.Len(t, s.makePlan(o, -1, t0).ask, 1)
	reset := t0.Add(time.Hour)
	s.answered("x", "pod-x", lifecycle.Answer{Detail: "limited", NotBefore: reset}, lifecycle.ReasonScaleDown, t0)
	w := s.makePlan(o, -1, t0.Add(59*time.Minute))
	require.Empty(t, w.ask)
	require.Empty(t, w.remove)
	require.Equal(t, "limited", s.facts(o, w, t0).unsureSays)
	require.Len(t, s.makePlan(o, -1, reset).ask, 1)
	s.answered("x", "another-pod", lifecycle.Answer{Verdict: lifecycle.Granted}, lifecycle.ReasonScaleDown, t0)
	require.Empty(t, s.makePlan(o, -1, reset).remove, "a grant is for one pod, and not for its name")
	s.answered("x", "pod-x", lifecycle.Answer{Verdict: lifecycle.Granted}, lifecycle.ReasonScaleDown, t0)
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, reset).remove)
}

// RUN-3: a pod that was read before its deletion, and arrives after it, is ignored. No event would remove it again: its owner would never
// be empty, and a set of a former template never be deleted.
func TestTakePod_RUN3_APodThatIsGoneDoesNotComeBack(t *testing.T) {
	s, o := newState(t)
	shown(s, "x")
	podShown(s, "x", endedPod(0))
	read := *s.members["x"].pod
	require.True(t, s.podGone("x", "pod-x", t0))
	s.memberSeen(Member{Namespace: "ns", Name: "x", UID: "uid-x", OwnerUID: "owner", TemplateHash: "a", Created: t0, Started: true, Deleting: t0}, &read, t0)
	s.memberGone("x", "uid-x", t0)
	require.Empty(t, s.members)
	require.Equal(t, 2, s.makePlan(o, -1, t0).create)
}

// RUN-7: a runner that was deleted and does not go, because its node is cut off, does not hold its place for ever.
func TestPlan_RUN7_WhatDoesNotGoHoldsNoPlaceForEver(t *testing.T) {
	s, o := newState(t)
	shown(s, "x")
	shown(s, "y")
	podShown(s, "x", func(v *registered.View) { v.Deleting = t0 })
	w := s.makePlan(o, -1, t0.Add(leaveTimeout-time.Second))
	require.Zero(t, w.create)
	require.Equal(t, t0.Add(leaveTimeout), w.plan.Next)
	require.Equal(t, 1, s.makePlan(o, -1, t0.Add(leaveTimeout)).create)
}

// RUN-4: the hold, and what ends it.
func TestPlan_RUN4_HoldsEphemeralRunnersThatHaveEnded(t *testing.T) {
	need := func(o *Owner) { o.ScaledAt = t0 }
	begin := func(change ...func(*Owner)) (*ownerState, *Owner) {
		s, o := newState(t, append([]func(*Owner){need}, change...)...)
		shown(s, "x")
		shown(s, "y")
		s.makePlan(o, -1, t0)
		s.completed(o, 0, t0)
		return s, o
	}
	s, o := begin()
	podShown(s, "x", endedPod(0))
	w := s.makePlan(o, -1, t0)
	require.True(t, w.held, "cbbc383a")
	require.Zero(t, w.create)
	require.Equal(t, t0.Add(10*time.Minute), w.plan.Next)
	require.Equal(t, 1, s.makePlan(o, -1, t0.Add(10*time.Minute)).create, "cbbc383a it ends by itself")
	o.ScaledAt = t0.Add(time.Second)
	require.Equal(t, 1, s.makePlan(o, -1, t0).create, "e2c8163b a newer need alone ends it")
	o.ScaledAt, o.Desired = t0, 3
	require.Equal(t, 2, s.makePlan(o, -1, t0).create, "a number that was raised is a need of its own")

	s, o = begin(func(o *Owner) { o.Ephemeral = false })
	podShown(s, "x", endedPod(0))
	require.Equal(t, 1, s.makePlan(o, -1, t0).create, "791634fb static runners know no hold")

	s, o = begin()
	s.podSeen("x", &registered.View{Name: "x", UID: "pod-x", TemplateHash: "a", Ephemeral: true, Ended: true}, t0)
	require.True(t, s.makePlan(o, -1, t0).held, "one that was up may have done its job, however it ended")

	s, o = begin()
	s.answered("x", "pod-x", lifecycle.Answer{Verdict: lifecycle.Granted}, lifecycle.ReasonStartTimeout, t0)
	s.makePlan(o, -1, t0)
	s.completed(o, 0, t0) // a pass while it leaves
	s.podGone("x", "pod-x", t0)
	s.memberGone("x", "uid-x", t0)
	require.Equal(t, 1, s.makePlan(o, -1, t0).create, "a runner that was removed because it did not start has done no job")
}

// RUN-7, K 8.3: what has failed to start did no job, holds no place, and is started again, less and less often.
func TestPlan_RUN7_FailedStartsAreReplacedSlowly(t *testing.T) {
	s, o := newState(t, func(o *Owner) { o.ScaledAt = t0 })
	shown(s, "y")
	now, wait := t0, []time.Duration{0, 5, 10, 20, 40, 80, 80}
	for i, seconds := range wait {
		name := string(rune('a' + i))
		s.memberSeen(Member{Namespace: "ns", Name: name, UID: "uid-" + name, OwnerUID: "owner", TemplateHash: "a", Created: now, Started: true}, nil, now)
		s.makePlan(o, -1, now)
		s.completed(o, 1, now)
		up := registered.View{Name: name, UID: "pod-" + name, Owner: registered.Owner{UID: "uid-" + name}, TemplateHash: "a", Ephemeral: true,
			Started: true, Running: true, Ready: true, ReadySince: now}
		s.podSeen(name, &up, now) // no job has reached it, and GitHub has not heard from it
		failed := up
		failed.Running, failed.Ready, failed.Ended, failed.End = false, false, true, registered.Ending{Exited: true, ExitCode: 1, Reason: "Error"}
		s.podSeen(name, &failed, now)
		now = now.Add(seconds * time.Second)
		if seconds > 0 {
			require.Zero(t, s.makePlan(o, -1, now.Add(-time.Second)).create, "after %d failures", i+1)
		}
		w := s.makePlan(o, -1, now)
		require.Equal(t, 1, w.create, "after %d failures", i+1)
		require.False(t, w.held, "no hold: the need stands")
	}
	shown(s, "y", func(v *registered.View) { v.UID = "another" })
	require.NotZero(t, s.startFails)
	shown(s, "z")
	require.Zero(t, s.startFails, "one that comes up ends it")
}

// K 1.7, RUN-7: what stands behind a pod that is going, or has gone, makes no other.
func TestPlan_RUN7_NothingIsStartedAgainInPlace(t *testing.T) {
	s, o := newState(t)
	shown(s, "x")
	shown(s, "y", busyPod)
	s.podSeen("x", &registered.View{Name: "x", UID: "pod-x", TemplateHash: "a", Deleting: t0}, t0)
	require.Equal(t, []string{"x"}, s.makePlan(o, -1, t0).remove)
	s.podGone("y", "pod-y", t0)
	require.Equal(t, []string{"x", "y"}, s.makePlan(o, -1, t0).remove)
}

// Each owner has a crew of its own: one that hangs delays no other, and stops with the manager.
func TestCrew_RUN2_AHangingOneDelaysNoOther(t *testing.T) {
	s := newShift()
	hanging, other := &crew{width: 1, shift: s}, &crew{width: 1, shift: s}
	begun, done := make(chan struct{}), make(chan struct{})
	require.True(t, hanging.give(task{key: "a", do: func(ctx context.Context) { close(begun); <-ctx.Done() }}))
	await.Receive(t, begun, "the task begins")
	require.False(t, hanging.give(task{key: "a", do: func(context.Context) {}}), "nothing is queued twice")
	require.True(t, other.give(task{key: "a", do: func(context.Context) { close(done) }}))
	await.Receive(t, done, "the other crew's task is done")
	s.end()
	require.False(t, other.give(task{key: "b", do: func(context.Context) {}}), "nothing begins any more")
}

// A pass that is still under way when the manager stops gives its tasks to crews that are about to end: each is done before the end
// or not begun, and none is left running.
func TestCrew_WhatIsGivenAtTheEndIsDoneOrNotBegun(t *testing.T) {
	for range 200 {
		s := newShift()
		var running atomic.Int32
		var passes sync.WaitGroup
		for pass := range 4 {
			c := &crew{width: 2, shift: s}
			passes.Go(func() {
				for n := range 8 {
					c.give(task{key: fmt.Sprint(pass, n), do: func(context.Context) {
						running.Add(1)
						runtime.Gosched()
						running.Add(-1)
					}})
				}
			})
		}
		s.end()
		require.Zero(t, running.Load(), "something runs after the end")
		await.Return(t, passes.Wait, "the passes end")
	}
}

func TestDesired(t *testing.T) {
	scaling := &v1alpha1.RunnerAutoscaling{MinReplicas: ptr.To[int32](2), MaxReplicas: 5}
	decided := func(n int32) *v1alpha1.AutoscalingStatus { return &v1alpha1.AutoscalingStatus{DesiredReplicas: &n} }
	require.Equal(t, 3, Desired(ptr.To[int32](3), nil, decided(9), 0), "nobody scales")
	require.Equal(t, 4, Desired(ptr.To[int32](3), scaling, decided(4), 0))
	require.Equal(t, 5, Desired(nil, scaling, decided(9), 0), "never more than the most")
	require.Equal(t, 2, Desired(nil, scaling, nil, 0), "before the first decision: the least")
	require.Equal(t, 4, Desired(nil, scaling, &v1alpha1.AutoscalingStatus{}, 4), "or what exists")
}

func TestStatusPatch_LeavesTheAutoscalersPartAlone(t *testing.T) {
	patch, err := StatusPatch(v1alpha1.RunnerSetStatus{Autoscaling: &v1alpha1.AutoscalingStatus{Queued: 3}})
	require.NoError(t, err)
	require.NotContains(t, string(patch), "autoscaling")
	require.Contains(t, string(patch), `"completeAt":null`)
	require.Contains(t, string(patch), `"idle":0`)
}
