package runnerowner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// F 8.11: a controller of another version finds what one of an earlier version left: members under hashes of another making, with
// labels that it does not know, and things of users and of other systems beside them. It replaces idle runners, behind the fence as
// for any changed template; what works goes on, and nothing else is touched.
func anotherVersionEndsNothing(t *testing.T, b *bench) {
	b.kind.create(b, some(2, true))
	pods := b.have(2)
	b.idle(pods...)
	b.counts("2 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 2 })
	b.work(pods[0])
	b.counts("1 busy", func(c v1alpha1.RunnerCounts) bool { return c.Busy == 1 })
	theirs := b.foreign()
	b.stop()
	members := b.kind.members(b)
	ours := client.MatchingLabels{runnerpod.LabelSelfRegistering: "true"}
	require.NoError(t, b.admin.List(t.Context(), members, client.InNamespace(b.namespace), ours))
	require.Equal(t, 2, lengthOf(members))
	b.eachMember(members, func(object client.Object) {
		patch := `{"metadata":{"labels":{"` + runnerpod.LabelTemplateHash + `":"0a1b2c3d4e5f6071","bullpen.dev/of-another-version":"true"}}}`
		require.NoError(t, b.admin.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
	})
	b.agent = "agent:2"
	b.start()
	b.eventually("the idle one is replaced by one of this version", func() bool {
		now := b.pods()
		b.idleIfPending(now)
		return !b.exists(pods[1]) && slices.ContainsFunc(now, func(pod corev1.Pod) bool { return agentOf(pod) == "agent:2" })
	})
	require.Contains(t, b.github.Removed(), nameOf(pods[1]), "RUN-2: GitHub has removed it before")
	require.NotContains(t, b.github.Removed(), nameOf(pods[0]))
	b.stays("the busy one works on", func() bool { return b.exists(pods[0]) })
	b.finish(pods[0])
	b.eventually("and is replaced when its job is done", func() bool {
		now := b.pods()
		b.idleIfPending(now)
		return len(now) == 2 && agentOf(now[0]) == "agent:2" && agentOf(now[1]) == "agent:2"
	})
	for _, object := range theirs {
		before := written(t, object)
		require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object), "%T %s", object, object.GetName())
		require.Equal(t, before, written(t, object), "%T %s was touched", object, object.GetName())
	}
}

// written is an object without its status, which Kubernetes writes.
func written(t *testing.T, object client.Object) map[string]any {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	delete(fields, "status")
	for _, key := range []string{"resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(fields, "metadata", key)
	}
	return fields
}

func agentOf(pod corev1.Pod) string { return pod.Spec.InitContainers[0].Image }

// foreign creates objects that are not the product's, under names and labels that look like its own, and like actions-runner-controller's.
func (b *bench) foreign() []client.Object {
	b.t.Helper()
	labels := map[string]string{"runner-template-hash": "5d9f", "runner-deployment-name": owner, "runnerset-name": owner, "app": "theirs"}
	// No selector of ours makes another's a member: what has the label and no owner of ours is an orphan, and these have no such label.
	of := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: labels, Finalizers: []string{"actions.summerwind.dev/runner-pod"}}
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "theirs:1"}}, NodeSelector: map[string]string{"none": "has-this"}}
	objects := []client.Object{
		&corev1.Pod{ObjectMeta: of(owner + "-theirs"), Spec: pod},
		&corev1.Secret{ObjectMeta: of(owner + "-registration")},
		&corev1.PersistentVolumeClaim{ObjectMeta: of("work-" + owner + "-7-0"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
		&appsv1.StatefulSet{ObjectMeta: of(owner + "-9"), Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: pod.Containers}},
		}},
	}
	for _, object := range objects {
		require.NoError(b.t, b.admin.Create(b.t.Context(), object))
	}
	b.eventually("Kubernetes is done with them", func() bool { // it writes their status
		settled := true
		for _, object := range objects {
			version := object.GetResourceVersion()
			require.NoError(b.t, b.admin.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
			settled = settled && version == object.GetResourceVersion() && seenByKubernetes(object)
		}
		return settled
	})
	b.t.Cleanup(func() {
		for _, object := range objects {
			_ = b.admin.Patch(b.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
	})
	return objects
}

// seenByKubernetes reports whether the components have written what they write on such an object.
func seenByKubernetes(object client.Object) bool {
	switch object := object.(type) {
	case *corev1.Pod:
		return len(object.Status.Conditions) > 0
	case *corev1.PersistentVolumeClaim:
		return object.Status.Phase == corev1.ClaimPending
	case *appsv1.StatefulSet:
		return object.Status.ObservedGeneration == object.Generation
	default:
		return true
	}
}

func (b *bench) eachMember(list client.ObjectList, visit func(client.Object)) {
	switch list := list.(type) {
	case *v1alpha1.RunnerList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	case *appsv1.StatefulSetList:
		for i := range list.Items {
			visit(&list.Items[i])
		}
	default:
		panic(fmt.Sprintf("members of type %T", list))
	}
}
