package chart

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// podsOf are the pods that the objects make: of Deployments, of hooks' Jobs, and of `helm test`.
func podsOf(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodSpec {
	t.Helper()
	found := map[string]corev1.PodSpec{}
	for _, object := range objects {
		path := []string{"spec", "template", "spec"}
		switch object.GetKind() {
		case "Deployment", "Job":
		case "Pod":
			path = path[:1]
		default:
			continue
		}
		raw, _, err := unstructured.NestedMap(object.Object, path...)
		require.NoError(t, err, id(object))
		var spec corev1.PodSpec
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec), id(object))
		found[object.GetKind()+" "+object.GetName()] = spec
	}
	return found
}

// everyPod is of an installation, and of an upgrade, which has hooks of its own.
func everyPod(t *testing.T, text string) map[string]corev1.PodSpec {
	t.Helper()
	pods := podsOf(t, render(t, helmchart.Release{}, text))
	for name, spec := range podsOf(t, render(t, helmchart.Release{Upgrade: true}, text)) {
		pods[name] = spec
	}
	for _, wanted := range []string{"Deployment bullpen-server", "Deployment bullpen-controller", "Job bullpen-crds", "Job bullpen-drain", "Pod bullpen-test"} {
		require.Contains(t, pods, wanted)
	}
	return pods
}

func TestPods_POD1_R6_EveryContainerHasRequestsAndLimits(t *testing.T) {
	kinds := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, text := range []string{least, everything} {
		for name, spec := range everyPod(t, text) {
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				for _, kind := range kinds {
					request, limit := c.Resources.Requests[kind], c.Resources.Limits[kind]
					require.Positive(t, request.Sign(), "%s: container %s requests no %s", name, c.Name, kind)
					require.GreaterOrEqual(t, limit.Cmp(request), 0, "%s: container %s has no limit of %s", name, c.Name, kind)
				}
			}
		}
	}
	const own = "resources: {requests: {cpu: 300m, memory: 300Mi}, limits: {cpu: 3, memory: 3Gi, ephemeral-storage: 3Gi}}"
	for name, spec := range everyPod(t, least+"server: {"+own+"}\ncontroller: {"+own+"}\nhookJobs: {"+own+"}\n") {
		require.Equal(t, "3", spec.Containers[0].Resources.Limits.Cpu().String(), name)
		require.Equal(t, "300m", spec.Containers[0].Resources.Requests.Cpu().String(), name)
	}
}

func TestPods_POD2_R11_ConformToRestrictedAndLeaveTheUserToTheCluster(t *testing.T) {
	for name, spec := range everyPod(t, everything) {
		require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
		require.EqualValues(t, 65532, *spec.SecurityContext.RunAsUser, name)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
		for _, c := range spec.Containers {
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
		}
	}
	for name, spec := range everyPod(t, least+"podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}\n") {
		require.Nil(t, spec.SecurityContext.RunAsUser, name)
		require.Nil(t, spec.SecurityContext.RunAsGroup, name)
		require.Nil(t, spec.SecurityContext.FSGroup, name)
		require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
	}
}

// A namespace with a quota on limits, minima and the level restricted takes every pod of the chart, and no pod that says nothing.
func TestPods_POD1_POD2_ANamespaceWithRulesTakesThem(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t), env.Namespace(t)
	of := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "rules"}
	require.NoError(t, admin.Create(t.Context(), &corev1.LimitRange{ObjectMeta: meta, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Min: of("cpu", "10m", "memory", "32Mi", "ephemeral-storage", "16Mi"),
	}}}}))
	require.NoError(t, admin.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: meta, Spec: corev1.ResourceQuotaSpec{Hard: of(
		"limits.cpu", "10", "limits.memory", "10Gi", "limits.ephemeral-storage", "10Gi",
	)}}))
	require.NoError(t, admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))))
	try := func(spec corev1.PodSpec) error {
		spec.ServiceAccountName = "default"
		return admin.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: spec}, client.DryRunAll)
	}
	for what, probe := range map[string]corev1.Container{
		"no resources": {Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}},
		"no context": {Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
			Requests: of("cpu", "10m", "memory", "32Mi", "ephemeral-storage", "16Mi"), Limits: of("cpu", "10m", "memory", "32Mi", "ephemeral-storage", "16Mi"),
		}},
	} {
		require.Eventually(t, func() bool {
			return apierrors.IsForbidden(try(corev1.PodSpec{Containers: []corev1.Container{probe}}))
		}, patience, interval, what)
	}
	for name, spec := range everyPod(t, least) {
		require.NoError(t, try(spec), name)
	}
}
