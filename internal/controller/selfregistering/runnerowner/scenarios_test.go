package runnerowner_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// scenarios are what both kinds of owner must do alike (RUN-1). Scenarios marked once do not depend on the kind of
// backing object: make test runs them for alternating kinds, make test-deep for both.
var scenarios = []struct {
	name string
	play func(t *testing.T, b *bench)
	once bool
}{
	{"K 2.1 exactly what is missing is made, each under a name of its own", exactlyWhatIsMissing, false},
	{"RUN4_791634fb static runners that are missing are made at once", staticGrowsAtOnce, true},
	{"RUN4_cbbc383a ephemeral ones that have ended are held, until there is a newer need or the hold is over", holdAndItsEnds, true},
	{"RUN7 one that failed to start is replaced in spite of the hold, slowly", failedStartsHoldNothing, true},
	{"K 2.3 the newest stay", newestStay, false},
	{"K 2.2 pending runners are no victims, the set waits for them", pendingAreNoVictims, false},
	{"RUN6_4551309e a victim stays it, and is taken back when demand returns", victimsAreTakenBack, true},
	{"RUN6_9628bb29 GitHub is asked once about a busy ephemeral runner", busyEphemeralIsAskedOnce, true},
	{"RUN6_9628bb29 and once a minute about a busy static one", busyStaticIsAskedSlowly, true},
	{"RUN2 busy runners are waited for without limit", busyIsWaitedFor, true},
	{"K 2.5 what is complete is replaced before it is gone", completeIsReplaced, false},
	{"K 2.4 a runner that GitHub does not get to know is replaced", registrationTimeout, true},
	{"RUN2 a rate limit is waited for", rateLimitIsWaitedFor, true},
	{"RUN2 an owner that is deleted drains", deletedOwnerDrains, false},
	{"K 2.6 a restart in the middle makes nothing twice", restartInTheMiddle, false},
	{"RUN3 a changed template replaces what does no work, and only behind the fence", templateChange, false},
	{"K 1.7 deleting a pod also deletes its Runner or StatefulSet", podDeleted, false},
	{"a Runner or StatefulSet that a user deletes is replaced", memberDeleted, false},
	{"K 8.7 a quota that refuses the pods is waited for, and nothing is minted anew", quotaIsWaitedFor, true},
	{"F 8.11 a controller of another version ends no job and touches nothing that is not its own", anotherVersionEndsNothing, false},
	{"a token without permission is reported once, and GitHub is not called again until the Secret changes", forbiddenIsLeftAlone, true},
	{"a spec that no node fits is shown, and costs nothing", noNodeFits, true},
	{"F 8.13 no series grows with jobs or runners", noSeriesGrows, true},
	{"F 4.6 a runner whose Secret is gone before it has started is replaced", missingSecretIsReplaced, true},
	{"a template that nothing can be built from stops everything, and says so", invalidTemplate, true},
	{"POOL10_TEN5 a refused deletion of a pod is shown", refusedDeletion, false},
}

func TestScenarios_RUN1_bed92705_14a878bf_c95e84a5(t *testing.T) {
	for i, name := range []string{"RunnerReplicaSet", "RunnerSet"} {
		k := []kind{replicaSets{}, runnerSets{}}[i]
		for n, s := range scenarios {
			if s.once && n%2 != i && !deep.Enabled() {
				continue
			}
			t.Run(name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				s.play(t, newBench(t, k))
			})
		}
	}
}

func exactlyWhatIsMissing(t *testing.T, b *bench) {
	b.kind.create(b, some(3, true))
	first := b.have(3)
	b.counts("3 booting", func(c v1alpha1.RunnerCounts) bool { return c.Starting == 3 && c.Replicas == 3 })
	b.idle(first...)
	b.counts("3 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 3 })
	b.kind.edit(b, replicas(7))
	b.have(7)
	b.stays("7 pods", func() bool { return len(b.pods()) == 7 })
	require.Equal(t, 7, b.github.Calls(registeredtest.JIT), "one registration each")
	for _, pod := range first {
		require.True(t, b.exists(pod))
	}
	b.is(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "RunnersAvailable")
}

func staticGrowsAtOnce(_ *testing.T, b *bench) {
	b.kind.create(b, some(1, false, func(s *settings) { s.scaledAt = b.now() }))
	b.idle(b.have(1)...)
	b.counts("1 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	pod := b.pods()[0]
	b.finish(pod)
	require.NoError(b.t, b.report(b.t.Context(), pod.Name, corev1.PodFailed, exited(0), false, b.now()))
	b.have(1)
	b.eventually("another", func() bool { return len(b.pods()) == 1 && b.pods()[0].UID != pod.UID })
	b.kind.edit(b, replicas(3)) // the need is no newer
	b.have(3)
}

func holdAndItsEnds(_ *testing.T, b *bench) {
	b.kind.create(b, some(2, true, func(s *settings) { s.scaledAt, s.hold = b.now(), time.Hour }))
	pods := b.have(2)
	b.idle(pods...)
	b.counts("2 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 })
	b.work(pods[0])
	b.finish(pods[0])
	b.is(v1alpha1.ConditionRecreationDelayed, metav1.ConditionTrue, "")
	b.stays("held", func() bool { return len(b.pods()) == 1 })
	b.pass(2 * time.Second)
	b.kind.edit(b, func(s *settings) { s.scaledAt = b.now() }) // e2c8163b: it changes alone
	pods = b.have(2)
	b.is(v1alpha1.ConditionRecreationDelayed, metav1.ConditionFalse, "")
	b.idle(pods...)
	b.counts("2 idle again", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 })
	b.pass(time.Minute)
	b.work(pods[0])
	b.finish(pods[0])
	b.is(v1alpha1.ConditionRecreationDelayed, metav1.ConditionTrue, "")
	b.pass(time.Hour)
	b.have(2)
}

func failedStartsHoldNothing(t *testing.T, b *bench) {
	b.kind.create(b, some(1, true, func(s *settings) { s.scaledAt, s.hold = b.now(), time.Hour }))
	for range 2 {
		pod := b.have(1)[0]
		require.NoError(t, b.report(t.Context(), pod.Name, corev1.PodFailed, exited(1), false, b.now()))
		b.eventually("it is gone", func() bool { return !b.exists(pod) })
	}
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "RunnersFailing")
	b.pass(5 * time.Second)
	b.have(1)
	b.is(v1alpha1.ConditionOutdated, "", "")
	pod := b.have(1)[0]
	require.NoError(t, b.report(t.Context(), pod.Name, corev1.PodFailed, exited(7), false, b.now()))
	b.is(v1alpha1.ConditionOutdated, metav1.ConditionTrue, "VersionRefused")
	b.pass(time.Minute)
	b.idle(b.have(1)...)
	b.is(v1alpha1.ConditionOutdated, metav1.ConditionFalse, "")
}

func newestStay(_ *testing.T, b *bench) {
	b.kind.create(b, some(2, true))
	old := b.have(2)
	b.idle(old...)
	b.eventually("another second", func() bool { return time.Since(old[1].CreationTimestamp.Time) > 2*time.Second })
	b.kind.edit(b, replicas(4))
	b.idle(b.have(4)...)
	b.counts("4 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 4 })
	b.kind.edit(b, replicas(2))
	left := b.have(2)
	for i := range left {
		require.NotContains(b.t, []string{old[0].Name, old[1].Name}, left[i].Name)
	}
	b.stays("2 stay", func() bool { return len(b.pods()) == 2 })
}

func pendingAreNoVictims(t *testing.T, b *bench) {
	b.kind.create(b, some(2, false))
	old := b.have(2)
	b.idle(old...)
	b.counts("2 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 })
	b.eventually("another second", func() bool { return time.Since(old[1].CreationTimestamp.Time) > 2*time.Second })
	b.kind.edit(b, replicas(4))
	all := b.have(4)
	b.counts("2 boot", func(c v1alpha1.RunnerCounts) bool { return c.Starting == 2 })
	b.kind.edit(b, replicas(2))
	b.stays("no removal is asked for", func() bool { return len(b.pods()) == 4 && b.github.Calls(registeredtest.Remove) == 0 })
	for _, pod := range all {
		if pod.Name != old[0].Name && pod.Name != old[1].Name {
			b.idle(pod)
		}
	}
	for _, pod := range b.have(2) {
		require.NotContains(t, []string{old[0].Name, old[1].Name}, pod.Name)
	}
}

// unknown has GitHub say nothing of removals.
func (b *bench) unknown(notBefore time.Time) {
	b.github.AnswerRemovals(func(registration.Subject) *lifecycle.Answer {
		return &lifecycle.Answer{Detail: "GitHub does not answer", NotBefore: notBefore}
	})
}

func victimsAreTakenBack(_ *testing.T, b *bench) {
	b.kind.create(b, some(2, true))
	b.idle(b.have(2)...)
	b.counts("2 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 })
	b.unknown(time.Time{})
	b.kind.edit(b, replicas(1))
	b.is(v1alpha1.ConditionRemovalBlocked, metav1.ConditionTrue, "FenceUnknown")
	b.counts("one is asked for, and counts", func(c v1alpha1.RunnerCounts) bool { return c.Terminating == 1 && c.Idle == 1 && c.Replicas == 2 })
	b.stays("nothing is removed, and no other is asked for", func() bool { return len(b.pods()) == 2 && b.kind.counts(b).Terminating == 1 })
	b.kind.edit(b, replicas(2))
	b.counts("it is taken back", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 && c.Terminating == 0 })
	b.is(v1alpha1.ConditionRemovalBlocked, metav1.ConditionFalse, "")
	b.github.AnswerRemovals(nil)
	b.stays("both stay, and none is made", func() bool { return len(b.pods()) == 2 })
}

func busyEphemeralIsAskedOnce(t *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	b.assign(pod) // GitHub knows, and the pod does not show it yet
	b.kind.edit(b, replicas(0))
	b.counts("busy, by GitHub's word", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 })
	for range 3 {
		b.pass(time.Hour)
	}
	b.stays("it stays", func() bool { return b.exists(pod) })
	require.Equal(t, 1, b.github.Calls(registeredtest.Remove))
	b.work(pod)
	b.finish(pod)
	b.have(0)
}

func busyStaticIsAskedSlowly(t *testing.T, b *bench) {
	b.kind.create(b, some(1, false))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	b.assign(pod)
	b.kind.edit(b, replicas(0))
	b.counts("busy, by GitHub's word", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 })
	b.stays("it stays", func() bool { return b.exists(pod) })
	require.Equal(t, 1, b.github.Calls(registeredtest.Remove))
	b.pass(61 * time.Second)
	b.eventually("asked again after a minute", func() bool { return b.github.Calls(registeredtest.Remove) == 2 })
	b.stays("it stays", func() bool { return b.exists(pod) })
	b.finish(pod)
	b.pass(61 * time.Second)
	b.have(0)
}

func busyIsWaitedFor(t *testing.T, b *bench) {
	b.kind.create(b, some(2, true))
	pods := b.have(2)
	b.idle(pods...)
	b.work(pods...)
	b.counts("2 busy", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 2 })
	b.kind.edit(b, replicas(0))
	b.pass(6 * time.Hour)
	b.stays("both stay", func() bool { return len(b.pods()) == 2 })
	require.Zero(t, b.github.Calls(registeredtest.Remove), "9628bb29 what shows work is not asked about")
	b.finish(pods...)
	b.have(0)
	b.counts("none", func(c v1alpha1.RunnerCounts) bool { return c.Replicas == 0 && c.Finished == 0 })
}

func completeIsReplaced(t *testing.T, b *bench) {
	b.kind.create(b, some(2, true))
	pods := b.have(2)
	b.idle(pods...)
	b.work(pods[0])
	b.finish(pods[0])
	left := b.have(2)
	b.eventually("another", func() bool { return !b.exists(pods[0]) })
	require.True(t, b.exists(pods[1]))
	require.Len(t, left, 2)
	b.eventually("nothing of the first is left", func() bool { return b.memberCount() == 2 })
}

func (b *bench) memberCount() int {
	list := b.kind.members(b)
	require.NoError(b.t, b.admin.List(b.t.Context(), list, client.InNamespace(b.namespace)))
	return lengthOf(list)
}

func registrationTimeout(_ *testing.T, b *bench) {
	b.kind.create(b, some(1, false))
	pod := b.have(1)[0]
	b.up(pod)
	b.stays("it has time", func() bool { return b.exists(pod) })
	b.pass(11 * time.Minute)
	b.touch(pod.Name) // its next look would come in a minute
	b.eventually("GitHub's list does not show it", func() bool {
		var seen corev1.Pod
		err := b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(&pod), &seen)
		return apierrors.IsNotFound(err) || err == nil && seen.Annotations[runnerpod.AnnotationUnseen] != ""
	})
	b.pass(2 * time.Minute) // it may have been asked about before that
	b.eventually("it is replaced", func() bool { return !b.exists(pod) && len(b.pods()) == 1 })
}

func rateLimitIsWaitedFor(_ *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	b.unknown(b.now().Add(30 * time.Minute))
	b.kind.edit(b, replicas(0))
	b.is(v1alpha1.ConditionRemovalBlocked, metav1.ConditionTrue, "FenceUnknown")
	calls := b.github.Calls(registeredtest.Remove)
	b.pass(20 * time.Minute)
	b.stays("nothing is asked before the limit ends", func() bool { return b.github.Calls(registeredtest.Remove) == calls && b.exists(pod) })
	b.github.AnswerRemovals(nil)
	b.pass(20 * time.Minute)
	b.have(0)
}

func deletedOwnerDrains(t *testing.T, b *bench) {
	b.kind.create(b, some(3, true))
	pods := b.have(3)
	b.idle(pods...)
	b.work(pods[1])
	b.counts("1 busy", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 && c.Idle == 2 })
	require.NoError(t, b.admin.Delete(t.Context(), b.kind.empty(b)))
	b.eventually("the idle ones go", func() bool { return len(b.pods()) == 1 })
	b.is(v1alpha1.ConditionDraining, metav1.ConditionTrue, "WaitingForRunners")
	b.stays("the busy one stays", func() bool { return b.exists(pods[1]) && !b.ownerGone() })
	b.finish(pods[1])
	b.eventually("all is gone", func() bool { return b.ownerGone() && len(b.pods()) == 0 && b.memberCount() == 0 })
}

func restartInTheMiddle(t *testing.T, b *bench) {
	b.kind.create(b, some(4, true))
	b.restart()
	pods := b.have(4)
	b.idle(pods...)
	b.counts("4 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 4 })
	b.unknown(time.Time{})
	b.kind.edit(b, replicas(2))
	b.counts("2 are asked for", func(c v1alpha1.RunnerCounts) bool { return c.Terminating == 2 })
	b.restart()
	b.github.AnswerRemovals(nil)
	b.have(2)
	b.stays("2 stay", func() bool { return len(b.pods()) == 2 })
	require.Len(t, b.github.Removed(), 2)
	require.Len(t, b.github.Minted(), 4)
}

func templateChange(t *testing.T, b *bench) {
	b.kind.create(b, some(3, true))
	old := b.have(3)
	b.idle(old...)
	b.work(old[0])
	b.counts("1 busy", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 && c.Idle == 2 })
	b.kind.edit(b, image("runner:2"))
	b.eventually("new ones are made", func() bool { return len(b.of("runner:2")) >= 2 })
	b.stays("the old ones stay until those serve", func() bool { return b.exists(old[1]) && b.exists(old[2]) })
	b.idle(b.of("runner:2")...)
	b.eventually("the idle ones go", func() bool { return !b.exists(old[1]) && !b.exists(old[2]) })
	require.Subset(t, b.github.Removed(), []string{nameOf(old[1]), nameOf(old[2])}, "F 4.5: behind the fence")
	b.stays("the busy one stays", func() bool { return b.exists(old[0]) })
	b.finish(old[0])
	b.eventually("all are new", func() bool {
		b.idleIfPending(b.of("runner:2"))
		return len(b.pods()) == 3 && len(b.of("runner:2")) == 3
	})
}

func (b *bench) idleIfPending(pods []corev1.Pod) {
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodPending && pods[i].Spec.NodeName != "" {
			b.idle(pods[i])
		}
	}
}

func (b *bench) of(image string) []corev1.Pod {
	var found []corev1.Pod
	for _, pod := range b.pods() {
		if pod.Spec.Containers[0].Image == image {
			found = append(found, pod)
		}
	}
	return found
}

func quotaIsWaitedFor(t *testing.T, b *bench) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	require.NoError(t, b.admin.Create(t.Context(), quota))
	b.eventually("the quota is in force", func() bool {
		require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(quota), quota))
		return len(quota.Status.Hard) > 0
	})
	b.kind.create(b, some(2, true))
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "CannotRegister")
	b.eventually("both are prepared", func() bool { return b.github.Calls(registeredtest.JIT) == 2 })
	b.stays("nothing is minted anew", func() bool { return b.github.Calls(registeredtest.JIT) == 2 && len(b.pods()) == 0 })
	b.eventually("it is said of both", func() bool {
		return strings.HasPrefix(b.condition(v1alpha1.ConditionProgressing).Message, "2 runners without a pod")
	})
	require.NoError(t, b.admin.Delete(t.Context(), quota))
	up := map[string]bool{}
	until := b.ahead.Load() + int64(8*time.Minute) // less than a start may take: to the controller, a pod that is made now is so old
	b.eventually("it recovers", func() bool {
		for _, pod := range b.pods() {
			if !up[pod.Name] && pod.Spec.NodeName != "" {
				b.idle(pod)
				up[pod.Name] = true
			}
		}
		if b.ahead.Load() < until {
			b.ahead.Add(int64(time.Minute))
		}
		var runners v1alpha1.RunnerList
		require.NoError(t, b.admin.List(t.Context(), &runners, client.InNamespace(b.namespace)))
		for i := range runners.Items {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"poked":"%d"}}}`, time.Now().UnixNano())
			require.NoError(t, b.admin.Patch(t.Context(), &runners.Items[i], client.RawPatch(types.MergePatchType, []byte(patch))))
		}
		return len(up) == 2
	})
	require.Equal(t, 2, b.github.Calls(registeredtest.JIT))
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "UpToDate")
}

func missingSecretIsReplaced(t *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: registered.SecretName(metav1.GetControllerOf(&pod).Name)}}
	require.NoError(t, b.admin.Delete(t.Context(), secret))
	b.pass(time.Minute)
	b.touch(pod.Name)
	b.eventually("another is there, under another registration", func() bool {
		now := b.pods()
		return len(now) == 1 && now[0].UID != pod.UID && nameOf(now[0]) != nameOf(pod)
	})
	require.Contains(t, b.eventOf("SecretMissing"), "is gone")
	require.Equal(t, 2, b.github.Calls(registeredtest.JIT))
	require.Equal(t, []string{nameOf(pod)}, b.github.Removed(), "RUN-2: behind the fence")
}

func podDeleted(t *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	require.NoError(t, b.admin.Delete(t.Context(), &pod))
	b.eventually("another is made, under another registration", func() bool {
		pods := b.pods()
		return len(pods) == 1 && pods[0].UID != pod.UID && nameOf(pods[0]) != nameOf(pod)
	})
	b.eventually("no twin", func() bool { return b.memberCount() == 1 })
}

func memberDeleted(t *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.work(pod)
	b.counts("busy", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 })
	list := b.kind.members(b)
	require.NoError(t, b.admin.List(t.Context(), list, client.InNamespace(b.namespace)))
	require.NoError(t, b.admin.Delete(t.Context(), firstOf(list), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	b.stays("a busy pod outlives it", func() bool { return b.exists(pod) })
	b.finish(pod)
	b.eventually("and is replaced when it has ended", func() bool { return len(b.pods()) == 1 && b.pods()[0].UID != pod.UID })
	b.idle(b.have(1)...)
}

func invalidTemplate(_ *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	b.kind.edit(b, func(s *settings) {
		s.spec.ContainerMode, s.spec.Dind = v1alpha1.ContainerModeDind, &v1alpha1.Dind{} // no class of microVMs
	})
	b.is(v1alpha1.ConditionValid, metav1.ConditionFalse, "InvalidTemplate")
	b.stays("what serves goes on", func() bool { return b.exists(pod) && len(b.pods()) == 1 })
	b.kind.edit(b, func(s *settings) { s.spec.ContainerMode, s.spec.Dind = v1alpha1.ContainerModeNone, nil })
	b.is(v1alpha1.ConditionValid, metav1.ConditionTrue, "TemplateValid")
}
