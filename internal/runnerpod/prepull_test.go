package runnerpod

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func prepullPool(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	pool := testPool()
	pool.Spec.ImagePrepull = &v1alpha1.ImagePrepull{Enabled: true}
	for _, c := range change {
		c(pool)
	}
	return pool
}

func prepullOf(t *testing.T, pool *v1alpha1.RunnerPool) *appsv1.DaemonSet {
	t.Helper()
	set, err := Prepull(pool, testOptions, nil)
	require.NoError(t, err)
	return set
}

func images(set *appsv1.DaemonSet) []string {
	var found []string
	for _, c := range slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers) {
		found = append(found, c.Image)
	}
	return found
}

func TestPrepulls_OnlyWhereAPoolForLinuxAsksForIt(t *testing.T) {
	require.False(t, Prepulls(testPool()))
	require.True(t, Prepulls(prepullPool()))
	require.False(t, Prepulls(prepullPool(func(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull.Enabled = false })))
	require.False(t, Prepulls(prepullPool(func(p *v1alpha1.RunnerPool) { p.Spec.Platform = v1alpha1.PlatformMacOS })), "Macs pull images of virtual machines")
	require.False(t, Prepulls(prepullPool(func(p *v1alpha1.RunnerPool) { p.DeletionTimestamp = ptr.To(metav1.Now()) })), "no runner starts in it any more")
}

// The binary of the agent is in any image by then: an image needs no shell, no program and no user of ours.
func TestPrepull_RunsTheAgentOnceInEachImage(t *testing.T) {
	set := prepullOf(t, prepullPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Dind, p.Spec.Template.RuntimeClassName = &v1alpha1.Dind{Image: "docker:dind"}, ptr.To("kata")
	}))
	require.Equal(t, []string{"agent:1", "docker:dind", "runner:1", "agent:1"}, images(set))
	spec := set.Spec.Template.Spec
	require.Equal(t, []string{DefaultAgentCommand, "install", "--to", agentBinary}, spec.InitContainers[0].Command)
	for _, c := range spec.InitContainers[1:] {
		require.Equal(t, []string{agentBinary, "--version"}, c.Command)
	}
	require.Equal(t, []string{DefaultAgentCommand, "pause"}, spec.Containers[0].Command)
	require.Nil(t, spec.RuntimeClassName, "it would hold a virtual machine on each node")
	require.False(t, *spec.AutomountServiceAccountToken)
	require.Equal(t, "linux-4-prepull", set.Name)
	require.Equal(t, "RunnerPool", set.OwnerReferences[0].Kind)
	require.Equal(t, set.Spec.Selector.MatchLabels, map[string]string{LabelPrepull: "linux-4"})
}

// Pre-pull pods are no runners: what selects runners, and what a drained pool waits for, does not select them.
func TestPrepull_EXCL2_POOL2_ItsPodsAreNoRunners(t *testing.T) {
	set := prepullOf(t, prepullPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{Labels: map[string]string{"mesh": "no"}, Annotations: map[string]string{"inject": "false"}}
	}))
	for _, labels := range []map[string]string{set.Labels, set.Spec.Template.Labels} {
		require.NotContains(t, labels, LabelRunner)
		require.NotContains(t, labels, LabelPool)
		require.Equal(t, "linux-4", labels[LabelPrepull])
	}
	require.Equal(t, "no", set.Spec.Template.Labels["mesh"])
	require.Equal(t, "false", set.Spec.Template.Annotations["inject"])
}

// The nodes are those of the pool's runners: what the API server, the scheduler and the controller add for them counts too.
func TestPrepull_IsPlacedAsTheRunnersAre(t *testing.T) {
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}}}}
	pool := prepullPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Architecture = v1alpha1.ArchitectureARM64
		p.Spec.Template.NodeSelector = map[string]string{"dedicated": "ci"}
		p.Spec.Template.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		p.Spec.Template.PriorityClassName = "ci"
		p.Spec.Template.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  required,
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}},
			},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "host"}}},
		}
		p.Spec.Template.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "ours"}}
	})
	options := testOptions
	options.Around.PullSecrets = []corev1.LocalObjectReference{{Name: "theirs"}}
	class := &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"kata": "true"}, Tolerations: []corev1.Toleration{{Key: "kata", Operator: corev1.TolerationOpExists}},
	}}
	set, err := Prepull(pool, options, class)
	require.NoError(t, err)
	runner, _, err := Build(pool, options, "aaaaaaaa")
	require.NoError(t, err)
	spec := set.Spec.Template.Spec
	require.Equal(t, map[string]string{"dedicated": "ci", corev1.LabelArchStable: "arm64", "kata": "true"}, spec.NodeSelector)
	require.Equal(t, append(runner.Spec.Tolerations, class.Scheduling.Tolerations...), spec.Tolerations)
	require.Equal(t, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}, spec.Affinity)
	require.Equal(t, "ci", spec.PriorityClassName)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "ours"}, {Name: "theirs"}}, spec.ImagePullSecrets)
	require.Equal(t, map[string]string{"dedicated": "ci"}, pool.Spec.Template.NodeSelector, "the pool is not changed")
}

func TestPrepull_POD1_TEN6_TakesNoRoomAndIsLimited(t *testing.T) {
	every := func(set *appsv1.DaemonSet) []corev1.Container {
		return slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers)
	}
	for _, c := range every(prepullOf(t, prepullPool())) {
		for _, name := range bounded {
			request, said := c.Resources.Requests[name]
			require.True(t, said, "%s: the API server would take the limit for it", name)
			require.True(t, request.IsZero(), name)
			limit := c.Resources.Limits[name]
			require.Positive(t, limit.Value(), name)
		}
	}
	given := prepullOf(t, prepullPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Requests: list("cpu", "20m", "memory", "16Mi")}
	}))
	for _, c := range every(given) {
		require.Equal(t, "20m", c.Resources.Requests.Cpu().String(), "where a LimitRange has minima")
		require.Equal(t, "16Mi", c.Resources.Requests.Memory().String())
	}
	uncounted := prepullOf(t, prepullPool(func(p *v1alpha1.RunnerPool) {
		p.Spec.Resources.EphemeralStorage = resource.NewQuantity(0, resource.BinarySI)
	}))
	for _, c := range every(uncounted) {
		require.NotContains(t, c.Resources.Requests, corev1.ResourceEphemeralStorage, "on nodes that do not count their disk")
	}
}

// Whatever the pool's runners may do, a pod that pulls their images conforms to restricted.
func TestPrepull_POD2_ConformsToRestricted(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.RunnerPool){
		"plain": func(*v1alpha1.RunnerPool) {},
		"root":  func(p *v1alpha1.RunnerPool) { p.Spec.Template.RunAsUser = ptr.To[int64](0) },
		"dind": func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Dind, p.Spec.Template.RuntimeClassName = &v1alpha1.Dind{}, ptr.To("kata")
		},
		"cluster": func(p *v1alpha1.RunnerPool) { p.Spec.Template.UserAssignment = v1alpha1.UserFromCluster },
	} {
		spec := prepullOf(t, prepullPool(change)).Spec.Template.Spec
		require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
		require.Equal(t, runtimeProfile(), spec.SecurityContext.SeccompProfile, name)
		require.Equal(t, name == "cluster", spec.SecurityContext.RunAsUser == nil, name)
		require.NotZero(t, ptr.Deref(spec.SecurityContext.RunAsUser, 1), name)
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			require.Equal(t, noPrivileges(), c.SecurityContext, name)
		}
		for _, v := range spec.Volumes {
			require.NotNil(t, v.EmptyDir, name)
			require.NotNil(t, v.EmptyDir.SizeLimit, name)
		}
	}
}

// The label of the images tells whether a node must pull, the annotation whether the DaemonSet must be written.
func TestPrepull_WhatChangesWithWhat(t *testing.T) {
	of := func(change func(*v1alpha1.RunnerPool)) (image, spec string) {
		set := prepullOf(t, prepullPool(change))
		return set.Spec.Template.Labels[LabelImages], set.Annotations[AnnotationPrepullSpec]
	}
	image, spec := of(func(*v1alpha1.RunnerPool) {})
	for name, c := range map[string]struct {
		change       func(*v1alpha1.RunnerPool)
		images, spec bool
	}{
		"nothing":      {func(*v1alpha1.RunnerPool) {}, false, false},
		"the image":    {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" }, true, true},
		"environment":  {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Env = []corev1.EnvVar{{Name: "A", Value: "b"}} }, false, false},
		"replicas":     {func(p *v1alpha1.RunnerPool) { p.Spec.Replicas = ptr.To[int32](9) }, false, false},
		"nodes":        {func(p *v1alpha1.RunnerPool) { p.Spec.Template.NodeSelector = map[string]string{"a": "b"} }, false, true},
		"the pace":     {func(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull.MaxConcurrentPulls = ptr.To(intstr.FromInt32(1)) }, false, true},
		"another pool": {func(p *v1alpha1.RunnerPool) { p.UID = "another" }, false, true},
	} {
		images, written := of(c.change)
		require.Equal(t, c.images, images != image, name)
		require.Equal(t, c.spec, written != spec, name)
		named, err := Images(prepullPool(c.change), testOptions)
		require.NoError(t, err)
		require.Equal(t, images, named, name)
	}
	require.Equal(t, DefaultConcurrentPulls, prepullOf(t, prepullPool()).Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.StrVal)
	_, err := Prepull(prepullPool(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "" }), testOptions, nil)
	require.Error(t, err)
}

func TestBuild_PrefersNodesWithTheImages(t *testing.T) {
	options := testOptions
	options.Around.ImageHosts = []string{"a", "b"}
	pool := testPool()
	before, err := TemplateHash(pool, testOptions)
	require.NoError(t, err)
	pod, _, err := Build(pool, options, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, []corev1.PreferredSchedulingTerm{{Weight: imagesWeight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}}},
	}}}, pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	require.Equal(t, before, pod.Labels[LabelTemplateHash], "it rolls no pool")

	options.Around.ImageHosts, options.Around.BareHosts = nil, []string{"c"}
	pool.Spec.Template.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 9}}}}
	pod, _, err = Build(pool, options, "abcd1234")
	require.NoError(t, err)
	preferred := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Len(t, preferred, 2, "behind the template's own")
	require.Equal(t, corev1.NodeSelectorOpNotIn, preferred[1].Preference.MatchExpressions[0].Operator)
	require.Len(t, pool.Spec.Template.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1, "the pool is not changed")

	pod, _, err = Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Nil(t, pod.Spec.Affinity)
}
