package runnerowner_test

import (
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// kind is one kind of owner, for the scenarios that both must pass (RUN-1).
type kind interface {
	empty(b *bench) client.Object
	create(b *bench, s settings)
	edit(b *bench, change func(*settings))
	counts(b *bench) v1alpha1.RunnerCounts
	conditions(b *bench) []metav1.Condition
	members(b *bench) client.ObjectList
}

// settings are what scenarios set, of either kind.
type settings struct {
	replicas int32
	hold     time.Duration
	scaledAt time.Time // zero: replicas are not scaled by jobs
	spec     v1alpha1.RunnerSpec
}

// some are settings for the given number of runners.
func some(replicas int32, ephemeral bool, change ...func(*settings)) settings {
	s := settings{replicas: replicas, hold: 10 * time.Minute, spec: v1alpha1.RunnerSpec{
		Registration: v1alpha1.Registration{Organization: "octo", Labels: []string{"l"}, Ephemeral: ptr.To(ephemeral)},
		Template:     corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "runner:1"}}}},
	}}
	for _, c := range change {
		c(&s)
	}
	return s
}

func image(name string) func(*settings) {
	return func(s *settings) { s.spec.Template.Spec.Containers[0].Image = name }
}

func replicas(n int32) func(*settings) { return func(s *settings) { s.replicas = n } }

type replicaSets struct{}

func (replicaSets) empty(b *bench) client.Object {
	return &v1alpha1.RunnerReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner}}
}

func (k replicaSets) get(b *bench) *v1alpha1.RunnerReplicaSet {
	b.t.Helper()
	var set v1alpha1.RunnerReplicaSet
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: owner}, &set))
	return &set
}

func (replicaSets) apply(set *v1alpha1.RunnerReplicaSet, s settings) {
	set.Spec.Replicas, set.Spec.RecreationHold, set.Spec.Template.Spec = ptr.To(s.replicas), &metav1.Duration{Duration: s.hold}, *s.spec.DeepCopy()
	set.Spec.ScaledAt = nil
	if !s.scaledAt.IsZero() {
		set.Spec.ScaledAt = ptr.To(metav1.NewTime(s.scaledAt))
	}
}

func (k replicaSets) create(b *bench, s settings) {
	b.t.Helper()
	set := &v1alpha1.RunnerReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner}}
	k.apply(set, s)
	require.NoError(b.t, b.admin.Create(b.t.Context(), set))
}

func (k replicaSets) edit(b *bench, change func(*settings)) {
	b.t.Helper()
	set := k.get(b)
	base := set.DeepCopy()
	s := settings{replicas: *set.Spec.Replicas, hold: set.Spec.RecreationHold.Duration, scaledAt: ptr.Deref(set.Spec.ScaledAt, metav1.Time{}).Time, spec: set.Spec.Template.Spec}
	change(&s)
	k.apply(set, s)
	require.NoError(b.t, b.admin.Patch(b.t.Context(), set, client.MergeFrom(base)))
}

func (k replicaSets) counts(b *bench) v1alpha1.RunnerCounts  { return k.get(b).Status.RunnerCounts }
func (k replicaSets) conditions(b *bench) []metav1.Condition { return k.get(b).Status.Conditions }
func (replicaSets) members(*bench) client.ObjectList         { return &v1alpha1.RunnerList{} }

type runnerSets struct{}

func (runnerSets) empty(b *bench) client.Object {
	return &v1alpha1.RunnerSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner}}
}

func (k runnerSets) get(b *bench) *v1alpha1.RunnerSet {
	b.t.Helper()
	var set v1alpha1.RunnerSet
	require.NoError(b.t, b.admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.namespace, Name: owner}, &set))
	return &set
}

func (runnerSets) apply(set *v1alpha1.RunnerSet, s settings) {
	set.Spec.Replicas, set.Spec.RecreationHold, set.Spec.RunnerSpec = ptr.To(s.replicas), &metav1.Duration{Duration: s.hold}, *s.spec.DeepCopy()
	set.Spec.Autoscaling = nil
	if !s.scaledAt.IsZero() {
		set.Spec.Autoscaling = &v1alpha1.RunnerAutoscaling{MinReplicas: ptr.To[int32](0), MaxReplicas: 100}
	}
}

// decide writes what an autoscaler has decided.
func (k runnerSets) decide(b *bench, s settings) {
	b.t.Helper()
	if s.scaledAt.IsZero() {
		return
	}
	set := k.get(b)
	base := set.DeepCopy()
	set.Status.Autoscaling = &v1alpha1.AutoscalingStatus{DesiredReplicas: ptr.To(s.replicas), ScaledAt: ptr.To(metav1.NewTime(s.scaledAt))}
	require.NoError(b.t, b.admin.Status().Patch(b.t.Context(), set, client.MergeFrom(base)))
}

func (k runnerSets) create(b *bench, s settings) {
	b.t.Helper()
	set := &v1alpha1.RunnerSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner}}
	k.apply(set, s)
	require.NoError(b.t, b.admin.Create(b.t.Context(), set))
	k.decide(b, s)
}

func (k runnerSets) edit(b *bench, change func(*settings)) {
	b.t.Helper()
	set := k.get(b)
	base := set.DeepCopy()
	s := settings{replicas: *set.Spec.Replicas, hold: set.Spec.RecreationHold.Duration, spec: set.Spec.RunnerSpec}
	if decided := set.Status.Autoscaling; set.Spec.Autoscaling != nil && decided != nil {
		s.replicas, s.scaledAt = *decided.DesiredReplicas, decided.ScaledAt.Time
	}
	change(&s)
	k.apply(set, s)
	require.NoError(b.t, b.admin.Patch(b.t.Context(), set, client.MergeFrom(base)))
	k.decide(b, s)
}

func (k runnerSets) counts(b *bench) v1alpha1.RunnerCounts  { return k.get(b).Status.RunnerCounts }
func (k runnerSets) conditions(b *bench) []metav1.Condition { return k.get(b).Status.Conditions }
func (runnerSets) members(*bench) client.ObjectList         { return &appsv1.StatefulSetList{} }

func lengthOf(list client.ObjectList) int {
	switch list := list.(type) {
	case *v1alpha1.RunnerList:
		return len(list.Items)
	case *appsv1.StatefulSetList:
		return len(list.Items)
	default:
		return 0
	}
}

func firstOf(list client.ObjectList) client.Object {
	switch list := list.(type) {
	case *v1alpha1.RunnerList:
		return &list.Items[0]
	case *appsv1.StatefulSetList:
		return &list.Items[0]
	default:
		return nil
	}
}
