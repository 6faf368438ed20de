package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// registering makes a pod that of a runner which registers itself: of no pool, without a poller, behind its finalizer.
func registering(pod *corev1.Pod) {
	pod.Labels = map[string]string{
		runnerpod.LabelRunner: "true", runnerpod.LabelSelfRegistering: "true", runnerpod.LabelRunnerSet: "set", runnerpod.LabelEphemeral: "false",
	}
	pod.Finalizers = []string{runnerpod.FinalizerRegistration}
	pod.Spec.Containers = pod.Spec.Containers[:1]
}

// alone takes what is not there out of a state: such a pod has no poller.
func alone(state func(*corev1.Pod)) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		state(pod)
		pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1]
	}
}

// freed takes the finalizer off as the controller does, so that the namespace can go.
func (y *yard) freed(pod *corev1.Pod) {
	y.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(y.t, client.IgnoreNotFound(y.as(controllerUser).Patch(y.t.Context(), pod.DeepCopy(), patch)))
}

func TestSelfRegistering_EXCL7_ABusyRunnerIsDeletedByNobody(t *testing.T) {
	y := newYard(t)
	busy := y.runner("busy", alone(takenRunner), registering)
	for name, who := range map[string]client.WithWatch{
		"a person": y.admin, "the controller": y.as(controllerUser), "the server": y.as(serverUser),
		"the garbage collector":    y.env.ClientAs(t, y.env.As(t, "system:serviceaccount:kube-system:generic-garbage-collector", "system:masters")),
		"the namespace controller": y.env.ClientAs(t, y.env.As(t, "system:serviceaccount:kube-system:namespace-controller", "system:masters")),
		"the StatefulSet's":        y.env.ClientAs(t, y.env.As(t, "system:serviceaccount:kube-system:statefulset-controller", "system:masters")),
	} {
		require.Error(t, who.Delete(t.Context(), busy.DeepCopy()), name)
	}
	refusedAs(t, y.admin.Delete(t.Context(), busy.DeepCopy()), "would kill the job")
	y.untouched(busy)

	y.become(busy, alone(idle)) // its job is over, and it waits for the next one
	require.NoError(t, y.as(controllerUser).Delete(t.Context(), busy.DeepCopy()))
	y.freed(busy)
	for name, state := range map[string]func(*corev1.Pod){"boots": alone(bootingRunner), "over": alone(ended(corev1.PodSucceeded)), "waits": pending} {
		pod := y.runner(name, state, registering)
		require.NoError(t, y.admin.Delete(t.Context(), pod.DeepCopy()), name)
		y.freed(pod)
	}
}

func TestSelfRegistering_EXCL7_NobodyCutsItsGrace(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "hasty-too", nil)
	pod := y.runner("waits", alone(idle), registering, on(node.Name))
	refusedAs(t, y.admin.Delete(t.Context(), pod.DeepCopy(), immediate), "without --force")
	y.untouched(pod)
	require.NoError(t, y.as(controllerUser).Delete(t.Context(), pod.DeepCopy(), immediate))
	y.freed(pod)
}

// RUN-2: only the controller writes the runner's owner, and whether GitHub may still give it a job.
func TestSelfRegistering_EXCL7_CannotBeMadeToLookLikeSomethingElse(t *testing.T) {
	y := newYard(t)
	pod := y.runner("busy", alone(takenRunner), registering)
	patched := func(who client.WithWatch, body string) error {
		return who.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(body)))
	}
	for _, label := range []string{
		runnerpod.LabelRunner, runnerpod.LabelSelfRegistering, runnerpod.LabelRunnerSet, runnerpod.LabelEphemeral, runnerpod.LabelPool, runnerpod.LabelDeployment, runnerpod.LabelReplicaSet,
	} {
		refusedAs(t, patched(y.admin, `{"metadata":{"labels":{"`+label+`":"other"}}}`), "protect it and its jobs")
	}
	const unfinalized = `{"metadata":{"finalizers":null}}`
	const unregistered = `{"metadata":{"annotations":{"` + runnerpod.AnnotationUnregistered + `":"2026-01-02T03:04:05Z"}}}`
	refusedAs(t, patched(y.as(serverUser), unfinalized), "only the controller may change them")
	refusedAs(t, patched(y.as(serverUser), unregistered), "only the controller may change them")
	require.NoError(t, patched(y.as(serverUser), `{"metadata":{"labels":{"other":"label"}}}`), "control: it may change pods")
	require.NoError(t, patched(y.as(controllerUser), unregistered))
	refusedAs(t, patched(y.as(serverUser), `{"metadata":{"annotations":{"`+runnerpod.AnnotationUnregistered+`":null}}}`), "only the controller may change them")
	require.NoError(t, patched(y.as(controllerUser), unfinalized))
}

// RUN-2: the controller deletes a StatefulSet whose RunnerSet is deleted, not the garbage collector.
func TestSelfRegistering_EXCL2_TheGarbageCollectorTakesNoStatefulSet(t *testing.T) {
	y := newYard(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "owner"}}
	require.NoError(t, y.admin.Create(t.Context(), owner))
	set := func(name string, labels map[string]string) *appsv1.StatefulSet {
		made := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
			}}},
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "none"}}},
				},
			},
		}
		require.NoError(t, y.admin.Create(t.Context(), made))
		return made
	}
	ours := set("ours", map[string]string{runnerpod.LabelSelfRegistering: "true"})
	others := set("others", nil)
	require.NoError(t, y.admin.Delete(t.Context(), owner))
	y.eventually("the garbage collector has been there", func() bool { return y.gone(others) })
	require.False(t, y.gone(ours))
	err := y.env.ClientAs(t, y.env.As(t, "system:serviceaccount:kube-system:generic-garbage-collector", "system:masters")).Delete(t.Context(), ours.DeepCopy())
	refusedAs(t, err, "is removed when its RunnerSet is drained")
	require.NoError(t, y.as(controllerUser).Delete(t.Context(), ours, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
}
