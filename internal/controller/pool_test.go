package controller_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func TestPool_POOL1_PodsAndServiceAccountsComeAndGoTogether(t *testing.T) {
	b := newBench(t)
	b.pool("up", 5)
	pods := b.havePods("up", 5)
	require.Equal(t, b.podNames("up"), b.accountNames("up"))
	require.Contains(t, b.get("up").Finalizers, runnerpod.FinalizerPoolDrain)
	require.True(t, metav1.IsControlledBy(&pods[0], b.get("up")))
	b.makeIdle(b.podNames("up")...)
	b.eventually("status", func() bool {
		s := b.get("up").Status
		return s.Idle == 5 && s.Replicas == 5 && s.ReadyReplicas == 5 && s.TemplateHash == pods[0].Labels[runnerpod.LabelTemplateHash]
	})

	b.scale("up", 2)
	b.havePods("up", 2)
	b.eventually("ServiceAccounts follow", func() bool { return slices.Equal(b.podNames("up"), b.accountNames("up")) })
	b.eventually("the ends are reported to the server", func() bool {
		reported := 0
		for _, pod := range pods {
			if _, ok := b.server.reportOf(pod.Name); ok {
				reported++
			}
		}
		return reported == 3
	})
	b.eventually("status", func() bool { return b.get("up").Status.Replicas == 2 })
	require.Equal(t, "UpToDate", b.condition("up", v1alpha1.ConditionProgressing).Reason)
}

// A ServiceAccount whose pod went by itself goes too, and one without a pod is found after a restart.
func TestPool_POOL1_ServiceAccountOfAVanishedPodIsRemoved(t *testing.T) {
	b := newBench(t)
	b.pool("vanish", 1)
	pod := b.havePods("vanish", 1)[0]
	require.NoError(t, b.admin.Delete(t.Context(), &pod))
	b.eventually("replaced, and nothing is left", func() bool {
		names := b.podNames("vanish")
		return len(names) == 1 && names[0] != pod.Name && slices.Equal(names, b.accountNames("vanish"))
	})
	report, ok := b.server.reportOf(pod.Name)
	require.True(t, ok)
	require.Equal(t, string(pod.UID), report.Pod.UID)
}

func TestPool_POOL4_TheReportedEndPrecedesDeletionAndReplacementWaitsForNobody(t *testing.T) {
	b := newBench(t)
	b.pool("reap", 2)
	names := []string{}
	for _, pod := range b.havePods("reap", 2) {
		names = append(names, pod.Name)
	}
	b.makeIdle(names...)
	b.makeBusy(names[0])
	b.server.setDown(true)
	b.finish(names[0])
	b.havePods("reap", 2) // the replacement exists although the end could not be reported
	b.eventually("a report was tried twice", func() bool { _, reports := b.server.asked(); return reports >= 2 })
	require.Contains(t, b.podNames("reap"), names[0], "kept until its end is reported")

	b.server.setDown(false)
	b.eventually("reaped", func() bool {
		return !slices.Contains(b.podNames("reap"), names[0]) && !slices.Contains(b.accountNames("reap"), names[0])
	})
	report, ok := b.server.reportOf(names[0])
	require.True(t, ok)
	require.True(t, report.existed, "POOL-4: reported while it still existed")
	require.Equal(t, ptr.To[int32](0), report.ExitCode)
	require.Equal(t, "reap", report.Pod.Pool)
	require.False(t, report.EndedAt.IsZero())
	require.Len(t, b.podNames("reap"), 2, "exactly one replacement")
}

func TestPool_EXCL2_AClaimedPodIsNotScaledDown(t *testing.T) {
	b := newBench(t)
	b.pool("claimed", 3)
	pods := b.havePods("claimed", 3)
	b.makeIdle(b.podNames("claimed")...)
	b.eventually("idle", func() bool { return b.get("claimed").Status.Idle == 3 })
	// The claim exists, and the pod does not show it yet: the fence alone knows.
	b.server.claim(string(pods[0].UID), fleet.ClaimMinted)
	b.scale("claimed", 0)
	b.eventually("the others go", func() bool { return len(b.podNames("claimed")) == 1 })
	require.Equal(t, []string{pods[0].Name}, b.podNames("claimed"))
	b.eventually("and it is shown as busy", func() bool { return b.get("claimed").Status.Busy == 1 })
}

// A drained pool releases its idle runners through the fence, keeps every busy runner, and comes back when it is open again.
func TestPool_EXCL2_ADrainedPoolKeepsWhoeverWorks(t *testing.T) {
	b := newBench(t)
	b.pool("drained", 3)
	pods := b.havePods("drained", 3)
	names := b.podNames("drained")
	b.makeIdle(names...)
	b.makeBusy(names[1])
	b.eventually("idle", func() bool { return b.get("drained").Status.Idle == 2 })
	idle := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == names[2] })]
	b.server.claim(string(idle.UID), fleet.ClaimMinted) // chosen for a job, and does not show it yet
	intake := func(want v1alpha1.Intake) {
		b.edit("drained", func(p *v1alpha1.RunnerPool) { p.Spec.Intake = want })
	}
	intake(v1alpha1.IntakePaused)
	b.eventually("a paused pool is reconciled", func() bool { p := b.get("drained"); return p.Status.ObservedGeneration == p.Generation })
	require.Equal(t, names, b.podNames("drained"), "and keeps its runners")

	intake(v1alpha1.IntakeDrained)
	b.eventually("the idle one goes", func() bool { return slices.Equal(b.podNames("drained"), names[1:]) })
	b.eventually("the others are shown as busy", func() bool { return b.get("drained").Status.Busy == 2 })
	b.restart()
	b.pool("other", 1) // the controller works on
	b.havePods("other", 1)
	require.Equal(t, names[1:], b.podNames("drained"))

	b.finish(names[1])
	b.eventually("one that has ended is not replaced", func() bool { return slices.Equal(b.podNames("drained"), names[2:]) })
	intake(v1alpha1.IntakeOpen)
	b.havePods("drained", 3)
	require.Contains(t, b.podNames("drained"), names[2])
}

func TestPool_EXCL3_AFenceThatCannotBeAskedDeletesNothing(t *testing.T) {
	b := newBench(t)
	b.pool("static", 3)
	b.havePods("static", 3)
	names := b.podNames("static")
	b.makeIdle(names...)
	b.eventually("idle", func() bool { return b.get("static").Status.Idle == 3 })
	b.server.setDown(true)
	b.scale("static", 1)
	b.eventually("asked again and again", func() bool { retires, _ := b.server.asked(); return retires >= 3 })
	require.Equal(t, names, b.podNames("static"))
	b.eventually("a condition says why", func() bool {
		c := b.condition("static", v1alpha1.ConditionRemovalBlocked)
		return c != nil && c.Status == metav1.ConditionTrue
	})
	require.Contains(t, b.condition("static", v1alpha1.ConditionRemovalBlocked).Message, "no database")

	b.server.setDown(false)
	b.havePods("static", 1)
	b.eventually("and says that it is over", func() bool {
		return b.condition("static", v1alpha1.ConditionRemovalBlocked).Status == metav1.ConditionFalse
	})
}

func TestPool_POOL2_ADeletedPoolWaitsForItsBusyRunners(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "orphan": metav1.DeletePropagationOrphan,
		"foreground": metav1.DeletePropagationForeground, // EXCL-7: the garbage collector does not wait for finalizers
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.collected() // the garbage collector has learnt of the kind
			pool := b.pool("drain", 3)
			b.havePods("drain", 3)
			names := b.podNames("drain")
			b.makeIdle(names...)
			b.makeBusy(names[1])
			require.NoError(t, b.admin.Delete(t.Context(), pool, &client.DeleteOptions{PropagationPolicy: &policy}))
			b.eventually("idle runners go at once", func() bool { return slices.Equal(b.podNames("drain"), names[1:2]) })
			b.eventually("and the pool says what it waits for", func() bool {
				c := b.condition("drain", v1alpha1.ConditionDraining)
				return c != nil && c.Status == metav1.ConditionTrue
			})
			b.restart()
			b.pool("other", 1) // the controller works on
			b.havePods("other", 1)
			b.collected() // and so does the garbage collector
			require.Equal(t, names[1:2], b.podNames("drain"))
			require.False(t, b.poolGone("drain"))

			b.finish(names[1])
			b.eventually("the pool goes with its last runner", func() bool { return b.poolGone("drain") && len(b.podNames("drain")) == 0 })
			report, ok := b.server.reportOf(names[1])
			require.True(t, ok)
			require.True(t, report.existed)
			b.eventually("no ServiceAccount is left", func() bool { return len(b.accountNames("drain")) == 0 })
		})
	}
}

// collected waits until the garbage collector has done its part in the deletion of a pool: it learns of a new kind within
// half a minute, and what a test sees of it before proves nothing.
func (b *bench) collected() {
	b.t.Helper()
	pool := b.pool("collected", 0)
	require.NoError(b.t, b.admin.Delete(b.t.Context(), pool, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	b.eventually("the garbage collector works", func() bool { return b.poolGone("collected") })
}

func TestPool_POOL5_ATemplateRollReplacesIdleAndLeavesBusy(t *testing.T) {
	b := newBench(t)
	b.pool("roll", 4)
	b.havePods("roll", 4)
	names := b.podNames("roll")
	b.makeIdle(names...)
	b.makeBusy(names[0])
	b.eventually("seen", func() bool { s := b.get("roll").Status; return s.Idle == 3 && s.Busy == 1 })
	b.edit("roll", func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" })
	b.eventually("all but the busy one are new", func() bool {
		fresh := 0
		for _, pod := range b.pods("roll") {
			require.False(t, pod.Name == names[0] && pod.DeletionTimestamp != nil)
			if pod.Spec.Containers[0].Image != "runner:2" {
				continue
			}
			fresh++
			if pod.Status.Phase == corev1.PodPending {
				serving := 0
				for _, other := range b.pods("roll") {
					if other.Status.Phase == corev1.PodRunning {
						serving++
					}
				}
				require.GreaterOrEqual(t, serving, 3, "POOL-5: one at a time")
				b.makeIdle(pod.Name)
			}
		}
		return fresh == 3 && len(b.pods("roll")) == 4
	})
	require.Contains(t, b.podNames("roll"), names[0])
}

// A restarted controller finds everything as it left it: nothing is created twice.
func TestPool_RestartCreatesNothingTwice(t *testing.T) {
	b := newBench(t)
	b.pool("again", 6)
	b.havePods("again", 6)
	names := b.podNames("again")
	for range 3 {
		b.restart()
		b.pool("sign", 1)
		b.havePods("sign", 1) // the new controller has looked around
		require.Equal(t, names, b.podNames("again"))
		require.NoError(t, b.admin.Delete(t.Context(), b.get("sign")))
		b.eventually("gone", func() bool { return b.poolGone("sign") })
	}
}

// Of two controllers one works; when it stops, the other takes over. The Lease and the roles are those that are shipped.
func TestController_OneLeaderAtATime(t *testing.T) {
	b := newBench(t)
	b.stop()
	first, second := b.startLeader(), b.startLeader()
	b.pool("led", 2)
	b.havePods("led", 2)
	b.eventually("one has created", func() bool { return b.leaders(first)+b.leaders(second) > 0 })
	leader, follower := first, second
	if b.leaders(second) == 1 {
		leader, follower = second, first
	}
	leader.stop()
	require.Zero(t, b.leaders(follower), "the other has only waited")
	b.scale("led", 3)
	b.havePods("led", 3)
	b.eventually("the other has taken over", func() bool { return b.leaders(follower) == 1 })
	follower.stop()
}
