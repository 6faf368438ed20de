package runnerowner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// marked are the labels and annotations of an object that Argo CD, Flux and Helm have applied, and one that is a person's.
func marked() (labels, annotations map[string]string) {
	return map[string]string{
			"argocd.argoproj.io/instance": "ci", "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "ci-1",
			"kustomize.toolkit.fluxcd.io/name": "ci", "helm.toolkit.fluxcd.io/name": "ci", "team": "a",
		}, map[string]string{
			"argocd.argoproj.io/tracking-id": "ci:x", "meta.helm.sh/release-name": "ci", "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "b",
		}
}

// made are all objects of the namespace that the product has made, as the API server has them.
func (b *bench) made() []unstructured.Unstructured {
	b.t.Helper()
	var all []unstructured.Unstructured
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerReplicaSet), v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunner), {Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "PersistentVolumeClaim"}, {Version: "v1", Kind: "ServiceAccount"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		require.NoError(b.t, b.admin.List(b.t.Context(), list, client.InNamespace(b.namespace)))
		all = append(all, list.Items...)
	}
	return all
}

// requireUnmarked fails for each object that carries a mark; kinds are those that must be among them.
func (b *bench) requireUnmarked(kinds ...string) {
	b.t.Helper()
	seen := map[string]bool{}
	for _, object := range b.made() {
		seen[object.GetKind()] = true
		for _, given := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
			for key := range given {
				require.False(b.t, runnerpod.OwnershipMark(key), "%s %s carries %s", object.GetKind(), object.GetName(), key)
			}
		}
	}
	for _, kind := range kinds {
		require.True(b.t, seen[kind], kind)
	}
}

// RUN-9: whatever a tool has written on an owner, or into its templates, none of the objects that are made for it carries.
func TestOwners_RUN9_R8_NothingThatIsMadeCarriesAToolsMark(t *testing.T) {
	labels, annotations := marked()
	b := newBench(t, replicaSets{})
	b.deployment(1, func(d *v1alpha1.RunnerDeployment) {
		d.Labels, d.Annotations = labels, annotations
		d.Spec.Template.Metadata = v1alpha1.TemplateMetadata{Labels: labels, Annotations: annotations}
		d.Spec.Template.Spec.Template.Labels, d.Spec.Template.Spec.Template.Annotations = labels, annotations
	})
	b.have(1)
	b.requireUnmarked("RunnerReplicaSet", "Runner", "Pod", "Secret")
	require.Equal(t, "a", b.pods()[0].Labels["team"], "what a person has written is there")

	s := newBench(t, runnerSets{})
	s.volumes(1)
	set := &v1alpha1.RunnerSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: owner, Labels: labels, Annotations: annotations}}
	runnerSets{}.apply(set, some(1, true, func(c *settings) {
		c.spec.Template.Labels, c.spec.Template.Annotations = labels, annotations
		c.spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
	}))
	set.Spec.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{{
		Name: "cache", Metadata: v1alpha1.TemplateMetadata{Labels: labels, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(s.namespace), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}}
	require.NoError(t, s.admin.Create(t.Context(), set))
	s.have(1)
	s.requireUnmarked("StatefulSet", "Pod", "Secret", "PersistentVolumeClaim")
	s.eventually("POOL-13: it says what its deletion waits for", func() bool {
		return meta.IsStatusConditionTrue(s.kind.conditions(s), v1alpha1.ConditionDeletionProtected)
	})
}
