package runnerowner_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// RUN-3 (adc889ce, c612e87d): a rollout on a real API server. The old set goes only when nothing of it is left, and one remains.
func TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet(t *testing.T) {
	b := newBench(t, replicaSets{})
	key := types.NamespacedName{Namespace: b.namespace, Name: owner}
	deployment := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       v1alpha1.RunnerDeploymentSpec{Replicas: ptr.To[int32](2), Template: v1alpha1.RunnerTemplateSpec{Spec: some(2, true).spec}},
	}
	require.NoError(t, b.admin.Create(t.Context(), deployment))
	old := b.have(2)
	b.idle(old...)
	b.work(old[0])
	sets := func() []v1alpha1.RunnerReplicaSet {
		var list v1alpha1.RunnerReplicaSetList
		require.NoError(t, b.admin.List(t.Context(), &list, client.InNamespace(b.namespace)))
		return list.Items
	}
	first := sets()[0].Name
	patch := `{"spec":{"template":{"spec":{"template":{"spec":{"containers":[{"name":"runner","image":"runner:2"}]}}}}}}`
	require.NoError(t, b.admin.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(patch))))
	b.eventually("the new set is made at full size", func() bool { return len(b.of("runner:2")) == 2 })
	require.True(t, b.exists(old[1]), "K 3.2: the old one is untouched until the new one serves")
	b.eventually("they are on a node", func() bool {
		b.idleIfPending(b.of("runner:2"))
		return !b.exists(old[1])
	})
	b.eventually("the old set has the busy one alone", func() bool { return len(b.pods()) == 3 && len(sets()) == 2 })
	require.True(t, b.exists(old[0]), "a busy runner delays without limit")
	b.finish(old[0])
	b.eventually("exactly one set remains", func() bool { return len(sets()) == 1 && sets()[0].Name != first })
	require.Len(t, b.pods(), 2)

	busy := b.pods()[0]
	b.work(busy)
	require.NoError(t, b.admin.Delete(t.Context(), deployment))
	b.eventually("the idle one goes", func() bool { return len(b.pods()) == 1 })
	require.True(t, b.exists(busy))
	b.finish([]corev1.Pod{busy}...)
	b.eventually("all is gone", func() bool {
		return len(sets()) == 0 && apierrors.IsNotFound(b.admin.Get(t.Context(), key, deployment)) && len(b.pods()) == 0
	})
}

// deployment makes a RunnerDeployment of ephemeral runners.
func (b *bench) deployment(replicas int32, change ...func(*v1alpha1.RunnerDeployment)) *v1alpha1.RunnerDeployment {
	b.t.Helper()
	d := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner},
		Spec:       v1alpha1.RunnerDeploymentSpec{Replicas: ptr.To(replicas), Template: v1alpha1.RunnerTemplateSpec{Spec: some(replicas, true).spec}},
	}
	for _, c := range change {
		c(d)
	}
	require.NoError(b.t, b.admin.Create(b.t.Context(), d))
	return d
}

// sets of the bench.
func (b *bench) sets() []v1alpha1.RunnerReplicaSet {
	b.t.Helper()
	var list v1alpha1.RunnerReplicaSetList
	require.NoError(b.t, b.admin.List(b.t.Context(), &list, client.InNamespace(b.namespace)))
	return list.Items
}

// asked is how many runners a set is asked for; -1 where there is none of that UID.
func (b *bench) asked(uid types.UID) int {
	for _, set := range b.sets() {
		if set.UID == uid {
			return int(*set.Spec.Replicas)
		}
	}
	return -1
}

// everySet counts the sets that are made from now on, also those that are gone again at once.
func (b *bench) everySet() func() int {
	b.t.Helper()
	watch, err := b.admin.Watch(b.t.Context(), &v1alpha1.RunnerReplicaSetList{}, client.InNamespace(b.namespace))
	require.NoError(b.t, err)
	b.t.Cleanup(watch.Stop)
	var mu sync.Mutex
	seen := map[types.UID]bool{}
	go func() {
		for event := range watch.ResultChan() {
			if set, is := event.Object.(*v1alpha1.RunnerReplicaSet); is {
				mu.Lock()
				seen[set.UID] = true
				mu.Unlock()
			}
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// useImage has the deployment's runners be of another image.
func (b *bench) useImage(d *v1alpha1.RunnerDeployment, image string) {
	b.t.Helper()
	patch := `{"spec":{"template":{"spec":{"template":{"spec":{"containers":[{"name":"runner","image":"` + image + `"}]}}}}}}`
	require.NoError(b.t, b.admin.Patch(b.t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// K 3.5 (e2c8163b, af96de61): a newer need at the same number reaches the set, and so does another number; neither makes a set.
func TestDeployment_RUN4_e2c8163b_af96de61_ANewerNeedAloneReachesTheSetAndMakesNone(t *testing.T) {
	b := newBench(t, replicaSets{})
	made := b.everySet()
	d := b.deployment(0, func(d *v1alpha1.RunnerDeployment) {
		d.Spec.Replicas = nil
		d.Spec.Autoscaling = &v1alpha1.RunnerAutoscaling{MinReplicas: ptr.To[int32](2), MaxReplicas: 5}
		d.Spec.RecreationHold = &metav1.Duration{Duration: time.Hour}
	})
	decide := func(n int32, at time.Time) {
		t.Helper()
		base := d.DeepCopy()
		d.Status.Autoscaling = &v1alpha1.AutoscalingStatus{DesiredReplicas: ptr.To(n), ScaledAt: ptr.To(metav1.NewTime(at))}
		require.NoError(t, b.admin.Status().Patch(t.Context(), d, client.MergeFrom(base)))
	}
	first := b.now().Truncate(time.Second)
	decide(2, first)
	pods := b.have(2)
	b.idle(pods...)
	observed := func(at time.Time) func() bool {
		return func() bool {
			sets := b.sets()
			return len(sets) == 1 && sets[0].Spec.ScaledAt != nil && sets[0].Spec.ScaledAt.Time.Equal(at)
		}
	}
	b.eventually("the set observes the need", observed(first))
	set := b.sets()[0]
	b.eventually("2 idle", func() bool { return b.sets()[0].Status.Idle == 2 })
	b.work(pods[0])
	b.finish(pods[0])
	b.eventually("the place of the one that is done is held", func() bool { return len(b.pods()) == 1 && b.sets()[0].Status.CompleteAt != nil })

	second := first.Add(time.Minute)
	decide(2, second)
	b.eventually("a newer need alone reaches the set", observed(second))
	b.have(2)
	decide(3, second.Add(time.Minute))
	b.have(3)
	require.Len(t, b.sets(), 1)
	require.Equal(t, set.UID, b.sets()[0].UID)
	require.Equal(t, set.Labels, b.sets()[0].Labels)
	require.EqualValues(t, 3, *b.sets()[0].Spec.Replicas)
	require.True(t, b.exists(pods[1]), "nothing is rolled")
	require.Equal(t, 1, made())
}

// F 3.7: going back to an earlier template whose set is still there takes that set, with the runner that works in it.
func TestDeployment_RUN3_AnEarlierTemplateTakesTheSetThatIsStillThere(t *testing.T) {
	b := newBench(t, replicaSets{})
	made := b.everySet()
	d := b.deployment(2)
	old := b.have(2)
	b.idle(old...)
	b.work(old[0])
	first := b.sets()[0]
	b.useImage(d, "runner:2")
	b.eventually("the second set serves, and the first has the busy one alone", func() bool {
		b.idleIfPending(b.of("runner:2"))
		return len(b.of("runner:2")) == 2 && !b.exists(old[1]) && b.asked(first.UID) == 0
	})
	second := b.of("runner:2")
	b.useImage(d, "runner:1")
	b.eventually("the first set is raised again, the second lowered to zero and deleted", func() bool {
		b.idleIfPending(b.of("runner:1"))
		return len(b.sets()) == 1 && len(b.of("runner:2")) == 0 && len(b.of("runner:1")) == 2
	})
	require.Equal(t, first.UID, b.sets()[0].UID)
	require.True(t, b.exists(old[0]), "it has worked through both rolls")
	require.Equal(t, 2, made(), "there was never a twin")
	for _, pod := range second {
		require.False(t, b.exists(pod))
	}
	require.Equal(t, 2+2+1, b.github.Calls(registeredtest.JIT), "of the first template one runner was missing")
}

// conditionOf is a condition of the deployment; the zero value for none.
func (b *bench) conditionOf(d *v1alpha1.RunnerDeployment, kind string) metav1.Condition {
	b.t.Helper()
	var now v1alpha1.RunnerDeployment
	require.NoError(b.t, b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(d), &now))
	if c := meta.FindStatusCondition(now.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// F 8.2: GitHub refuses the version of the runners. A condition says so, nothing spins, and a new image ends it by itself.
func TestDeployment_RUN7_ANewImageEndsOutdatedByItself(t *testing.T) {
	b := newBench(t, replicaSets{})
	d := b.deployment(1)
	for range 2 {
		pod := b.have(1)[0]
		b.up(pod) // its supervisor is ready before GitHub has been asked
		b.eventually("it is seen to be up", func() bool { return b.sets()[0].Status.Idle == 1 })
		require.NoError(t, b.report(t.Context(), pod.Name, corev1.PodFailed, exited(7), false, b.now()))
		b.eventually("it is gone", func() bool { return !b.exists(pod) })
	}
	b.eventually("it says so", func() bool { return b.conditionOf(d, v1alpha1.ConditionOutdated).Status == metav1.ConditionTrue })
	require.Contains(t, b.conditionOf(d, v1alpha1.ConditionOutdated).Message, "Set a newer image")
	b.eventually("and an Event does", func() bool { return b.eventOf(v1alpha1.ConditionOutdated) != "" })
	looks := 0
	b.eventually("no runner is made again and again", func() bool {
		require.LessOrEqual(t, b.github.Calls(registeredtest.JIT), 3)
		looks++
		return looks > 40
	})
	b.useImage(d, "runner:2")
	b.eventually("the new set serves, and is the only one", func() bool {
		b.idleIfPending(b.of("runner:2"))
		for _, pod := range b.of("runner:1") { // the last that the old set had begun: what starts is waited for, and GitHub refuses it too
			if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" {
				require.NoError(t, client.IgnoreNotFound(b.report(t.Context(), pod.Name, corev1.PodFailed, exited(7), false, b.now())))
			}
		}
		sets := b.sets()
		return len(sets) == 1 && len(b.of("runner:2")) == 1 && len(b.pods()) == 1 && sets[0].Status.Idle == 1
	})
	b.eventually("nothing else was needed", func() bool {
		return b.conditionOf(d, v1alpha1.ConditionOutdated).Status == metav1.ConditionFalse &&
			b.conditionOf(d, v1alpha1.ConditionAvailable).Status == metav1.ConditionTrue
	})
}

// eventOf is the note of an Event with that reason; empty for none.
func (b *bench) eventOf(reason string) string {
	b.t.Helper()
	var list eventsv1.EventList
	require.NoError(b.t, b.admin.List(b.t.Context(), &list, client.InNamespace(b.namespace)))
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			return list.Items[i].Note
		}
	}
	return ""
}

// F 2.8: a set whose label a user has removed still belongs to its deployment.
func TestDeployment_RUN3_ASetWithoutItsLabelIsStillItsSet(t *testing.T) {
	b := newBench(t, replicaSets{})
	deployment := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner},
		Spec:       v1alpha1.RunnerDeploymentSpec{Replicas: ptr.To[int32](1), Template: v1alpha1.RunnerTemplateSpec{Spec: some(1, true).spec}},
	}
	require.NoError(t, b.admin.Create(t.Context(), deployment))
	b.have(1)
	var list v1alpha1.RunnerReplicaSetList
	require.NoError(t, b.admin.List(t.Context(), &list, client.InNamespace(b.namespace)))
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, runnerpod.LabelDeployment)
	require.NoError(t, b.admin.Patch(t.Context(), &list.Items[0], client.RawPatch(types.MergePatchType, []byte(patch))))
	require.NoError(t, b.admin.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))))
	b.have(2)
}

// RUN-3: a user deletes the serving set. Its busy runners finish, and other runners replace it at once.
func TestDeployment_RUN3_ADeletedSetIsReplacedAtOnce(t *testing.T) {
	b := newBench(t, replicaSets{})
	deployment := &v1alpha1.RunnerDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner},
		Spec:       v1alpha1.RunnerDeploymentSpec{Replicas: ptr.To[int32](1), Template: v1alpha1.RunnerTemplateSpec{Spec: some(1, true).spec}},
	}
	require.NoError(t, b.admin.Create(t.Context(), deployment))
	busy := b.have(1)[0]
	b.idle(busy)
	b.work(busy)
	var list v1alpha1.RunnerReplicaSetList
	require.NoError(t, b.admin.List(t.Context(), &list, client.InNamespace(b.namespace)))
	require.NoError(t, b.admin.Delete(t.Context(), &list.Items[0]))
	b.have(2)
	require.True(t, b.exists(busy))
	b.finish(busy)
	b.eventually("one set remains", func() bool {
		require.NoError(t, b.admin.List(t.Context(), &list, client.InNamespace(b.namespace)))
		return len(list.Items) == 1 && len(b.pods()) == 1
	})
}
