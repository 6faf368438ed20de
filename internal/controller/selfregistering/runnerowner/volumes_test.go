package runnerowner_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// claims are the volume claims that there are, by name.
func (b *bench) claims() map[string]types.UID {
	b.t.Helper()
	var list corev1.PersistentVolumeClaimList
	require.NoError(b.t, b.admin.List(b.t.Context(), &list, client.InNamespace(b.namespace)))
	found := map[string]types.UID{}
	for _, claim := range list.Items {
		if claim.DeletionTimestamp == nil {
			found[claim.Name] = claim.UID
		}
	}
	return found
}

// volumes makes volumes that claims can have.
func (b *bench) volumes(n int) {
	b.t.Helper()
	for i := range n {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", b.namespace, i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName:       b.namespace,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
			},
		}
		require.NoError(b.t, b.admin.Create(b.t.Context(), volume))
		b.t.Cleanup(func() { _ = b.admin.Delete(context.Background(), volume) })
	}
}

// Runners that are removed leave their volumes, and their successors reuse them; deleting the set deletes them only if its policy says so.
func TestRunnerSet_K43_VolumesWaitForTheNextRunner(t *testing.T) {
	for name, c := range map[string]struct {
		retention v1alpha1.VolumeRetention
		left      int
	}{"retained": {v1alpha1.VolumesRetained, 2}, "deleted": {v1alpha1.VolumesDeleted, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := runnerSets{}
			b := newBench(t, k)
			b.volumes(2)
			set := &v1alpha1.RunnerSet{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: owner}}
			s := some(2, true)
			s.spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
			k.apply(set, s)
			set.Spec.VolumeRetention = c.retention
			claim := corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(b.namespace),
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}
			set.Spec.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{{Name: "cache", Spec: claim}}
			left := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "cache-own-5-0", Labels: map[string]string{runnerpod.LabelRunnerSet: owner}}, Spec: claim,
			}
			require.NoError(t, b.admin.Create(t.Context(), left), "of an earlier set of that name")
			require.NoError(t, b.admin.Create(t.Context(), set))
			first := b.have(2)
			b.idle(first...)
			b.eventually("two volumes", func() bool { return len(b.claims()) == 2 })
			before := b.claims()
			require.Equal(t, left.UID, before[left.Name])
			require.Contains(t, []string{first[0].Name, first[1].Name}, "own-5-0", "what is left is used before another is made")

			k.edit(b, replicas(0))
			b.eventually("no runner is left that would hold its volume", func() bool {
				var pods corev1.PodList
				require.NoError(t, b.admin.List(t.Context(), &pods, client.InNamespace(b.namespace)))
				return len(pods.Items) == 0 && b.memberCount() == 0
			})
			require.Equal(t, before, b.claims(), "the volumes wait")
			k.edit(b, replicas(2))
			again := b.have(2)
			require.NotEqual(t, first[0].UID, again[0].UID)
			for _, pod := range again {
				require.Contains(t, before, "cache-"+pod.Name, "it has the volume of one that was there before")
			}
			require.Equal(t, before, b.claims(), "no other was made")

			b.idle(again...)
			require.NoError(t, b.admin.Delete(t.Context(), set))
			b.eventually("the set is gone", b.ownerGone)
			b.eventually("and its volumes, where it says so", func() bool { return len(b.claims()) == c.left })
		})
	}
}

// RUN-2: a StatefulSet that a user deletes in the foreground waits for its pod, and the pod is released: it is not created again.
func TestRunnerSet_RUN2_AForegroundDeletionEnds(t *testing.T) {
	b := newBench(t, runnerSets{})
	b.kind.create(b, some(1, true))
	pod := b.have(1)[0]
	b.idle(pod)
	b.counts("idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	list := b.kind.members(b)
	require.NoError(t, b.admin.List(t.Context(), list, client.InNamespace(b.namespace)))
	member := firstOf(list)
	require.NoError(t, b.admin.Delete(t.Context(), member, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	require.NoError(t, client.IgnoreNotFound(b.admin.Delete(t.Context(), &pod))) // as the garbage collector does, when it gets to it
	b.eventually("its pod is released", func() bool {
		return apierrors.IsNotFound(b.admin.Get(t.Context(), client.ObjectKeyFromObject(&pod), &corev1.Pod{}))
	})
	_ = b.admin.Patch(t.Context(), member, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))) // and so on
	b.eventually("another is there", func() bool {
		pods := b.pods()
		return b.memberCount() == 1 && len(pods) == 1 && pods[0].UID != pod.UID
	})
	require.Contains(t, b.github.Removed(), nameOf(pod))
}

// RUN-2: a set whose credentials are gone goes, if no runner of it ever had a pod.
func TestRunnerSet_RUN2_GoesWithoutCredentials(t *testing.T) {
	b := newBench(t, runnerSets{})
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.For {
			return registration.ErrCredentials
		}
		return nil
	})
	b.kind.create(b, some(2, true))
	b.counts("2 wait", func(c v1alpha1.RunnerCounts) bool { return c.Starting == 2 })
	require.NoError(t, b.admin.Delete(t.Context(), b.kind.empty(b)))
	b.is(v1alpha1.ConditionDraining, metav1.ConditionTrue, "")
	b.stays("GitHub may know them", func() bool { return b.memberCount() == 2 })
	b.pass(11 * time.Minute)
	b.eventually("it goes", func() bool { return b.ownerGone() && b.memberCount() == 0 })
}
