package runnerpod

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func TestBuild_R10_MetadataOfTheTemplate(t *testing.T) {
	pool := testPool()
	pool.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{
		Labels:      map[string]string{"sidecar.istio.io/inject": "false", "team": "ci"},
		Annotations: map[string]string{"linkerd.io/inject": "disabled"},
	}
	pod, account, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, "false", pod.Labels["sidecar.istio.io/inject"])
	require.Equal(t, "disabled", pod.Annotations["linkerd.io/inject"])
	require.Equal(t, "true", pod.Labels[LabelRunner])
	require.Equal(t, "linux-4", pod.Labels[LabelPool])
	require.Equal(t, ContainerRunner, pod.Annotations[AnnotationDefaultContainer])
	require.NotContains(t, account.Labels, "team")
	pod.Labels["team"] = "other"
	require.Equal(t, "ci", pool.Spec.Template.Metadata.Labels["team"], "Build keeps no pointer into the pool")

	without, err := TemplateHash(testPool(), testOptions)
	require.NoError(t, err)
	with, err := TemplateHash(pool, testOptions)
	require.NoError(t, err)
	require.NotEqual(t, without, with, "idle runners are replaced by ones with the labels")
}

func TestBuild_NET4_R10_MetadataIsNeverBullpensOwn(t *testing.T) {
	for name, m := range map[string]v1alpha1.RunnerPodMetadata{
		"the pool":           {Labels: map[string]string{LabelPool: "other"}},
		"the owner":          {Labels: map[string]string{LabelOwner: "acme"}},
		"self-registering":   {Labels: map[string]string{LabelSelfRegistering: "true"}},
		"one to come":        {Labels: map[string]string{"bullpen.dev/new": "x"}},
		"allow-deletion":     {Annotations: map[string]string{AnnotationAllowDeletion: "yes"}},
		"the owner's id":     {Annotations: map[string]string{AnnotationOwnerID: "1"}},
		"safe to evict":      {Annotations: map[string]string{AnnotationSafeToEvict: "true"}},
		"do not disrupt":     {Annotations: map[string]string{AnnotationDoNotDisrupt: "true"}},
		"default container":  {Annotations: map[string]string{AnnotationDefaultContainer: "istio-proxy"}},
		"no key":             {Labels: map[string]string{"a b": "x"}},
		"no value":           {Labels: map[string]string{"a": "x y"}},
		"a long value":       {Labels: map[string]string{"a": strings.Repeat("x", 64)}},
		"no annotation's":    {Annotations: map[string]string{"/": "x"}},
		"upper case in both": {Labels: map[string]string{"Example.com/a": "x"}},
	} {
		pool := testPool()
		pool.Spec.Template.Metadata = &m
		_, _, err := Build(pool, testOptions, "abcd1234")
		var invalid *InvalidTemplateError
		require.ErrorAs(t, err, &invalid, name)
		require.ErrorContains(t, err, "spec.template.metadata", name)
	}
}

func TestBuild_POD4_R18_PullSecretsOfTheTemplateAndTheDefaultAccount(t *testing.T) {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pool, options := testPool(), testOptions
	pool.Spec.Template.ImagePullSecrets = []corev1.LocalObjectReference{ref("own"), ref("both")}
	options.Around.PullSecrets = []corev1.LocalObjectReference{ref("both"), ref("default")}
	pod, account, err := Build(pool, options, "abcd1234")
	require.NoError(t, err)
	want := []corev1.LocalObjectReference{ref("own"), ref("both"), ref("default")}
	require.Equal(t, want, pod.Spec.ImagePullSecrets)
	require.Equal(t, want, account.ImagePullSecrets)

	one, err := TemplateHash(pool, testOptions)
	require.NoError(t, err)
	other, err := TemplateHash(pool, options)
	require.NoError(t, err)
	require.Equal(t, one, other, "a change of the cluster replaces no runner")
}

func TestBuild_POD5_R16_TheArchitectureIsChosen(t *testing.T) {
	said := func(change func(*v1alpha1.RunnerPool), around v1alpha1.Architecture) map[string]string {
		pool, options := testPool(), testOptions
		change(pool)
		options.Around.Architecture = around
		pod, _, err := Build(pool, options, "abcd1234")
		require.NoError(t, err)
		return pod.Spec.NodeSelector
	}
	const key = corev1.LabelArchStable
	nothing := func(*v1alpha1.RunnerPool) {}
	arm := func(p *v1alpha1.RunnerPool) { p.Spec.Architecture = v1alpha1.ArchitectureARM64 }
	require.Empty(t, said(nothing, ""), "docs/adr/0023")
	require.Equal(t, map[string]string{key: "amd64"}, said(nothing, v1alpha1.ArchitectureAMD64))
	require.Equal(t, map[string]string{key: "arm64"}, said(arm, v1alpha1.ArchitectureAMD64))
	require.Equal(t, map[string]string{key: "s390x"}, said(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.NodeSelector = map[string]string{key: "s390x"}
	}, v1alpha1.ArchitectureAMD64))
	require.Empty(t, said(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}}}},
		}}}
	}, v1alpha1.ArchitectureAMD64))

	pool := testPool()
	arm(pool)
	require.Equal(t, v1alpha1.ArchitectureARM64, ArchitectureOf(pool))
	require.Equal(t, "ARM64", ArchitectureOf(pool).RunnerLabel())
	require.Equal(t, v1alpha1.ArchitectureARM64, ArchitectureOf(macPool()))
	require.Empty(t, ArchitectureOf(testPool()))
	plain, err := Fleet(testPool())
	require.NoError(t, err)
	other, err := Fleet(pool)
	require.NoError(t, err)
	require.NotEqual(t, plain, other, "they share no nodes")
	before, err := TemplateHash(testPool(), testOptions)
	require.NoError(t, err)
	after, err := TemplateHash(pool, testOptions)
	require.NoError(t, err)
	require.NotEqual(t, before, after)

	pool.Spec.Template.NodeSelector = map[string]string{key: "amd64"}
	_, _, err = Build(pool, testOptions, "abcd1234")
	require.ErrorContains(t, err, "remove one of them")
	mac := macPool()
	mac.Spec.Architecture = v1alpha1.ArchitectureAMD64
	_, _, err = Build(mac, testOptions, "abcd1234")
	require.ErrorContains(t, err, "Apple silicon")
	odd := testPool()
	odd.Spec.Architecture = "mips"
	_, _, err = Build(odd, testOptions, "abcd1234")
	require.ErrorContains(t, err, "amd64 or arm64")
}

func TestDefaultArchitecture_POD5_R16_OnlyWhereNodesDiffer(t *testing.T) {
	node := func(pairs ...string) *corev1.Node {
		labels := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]] = pairs[i+1]
		}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	const arch, system = corev1.LabelArchStable, corev1.LabelOSStable
	amd, arm, s390 := node(arch, "amd64", system, "linux"), node(arch, "arm64", system, "linux"), node(arch, "s390x")
	mac, windows, unlabelled := node(arch, "arm64", system, "darwin"), node(arch, "amd64", system, "windows"), node()
	for name, c := range map[string]struct {
		nodes []*corev1.Node
		want  v1alpha1.Architecture
	}{
		"none":               {nil, ""},
		"one":                {[]*corev1.Node{arm, arm}, ""},
		"none says":          {[]*corev1.Node{unlabelled, amd}, ""},
		"two":                {[]*corev1.Node{arm, amd}, "amd64"},
		"two others":         {[]*corev1.Node{s390, arm}, "arm64"},
		"Macs do not count":  {[]*corev1.Node{amd, mac}, ""},
		"Windows in between": {[]*corev1.Node{arm, windows}, ""},
	} {
		require.Equal(t, c.want, DefaultArchitecture(c.nodes), name)
	}
}

// Equal resources hash equally however they are written, and so does the default of userAssignment.
func TestTemplateHash_POD1_EqualResourcesHashEqually(t *testing.T) {
	hash := func(change func(*v1alpha1.RunnerTemplate)) string {
		pool := dockerPool()
		change(&pool.Spec.Template)
		h, err := TemplateHash(pool, testOptions)
		require.NoError(t, err)
		return h
	}
	of := func(r *v1alpha1.RunnerTemplate, size string) {
		r.AgentResources = &v1alpha1.ContainerResources{Limits: list("memory", size)}
		r.Dind.Resources = &v1alpha1.ContainerResources{Requests: list("memory", size)}
	}
	one := hash(func(r *v1alpha1.RunnerTemplate) { of(r, "1Gi") })
	require.Equal(t, one, hash(func(r *v1alpha1.RunnerTemplate) { of(r, "1073741824") }))
	require.NotEqual(t, one, hash(func(r *v1alpha1.RunnerTemplate) { of(r, "2Gi") }))
	require.Equal(t, hash(func(*v1alpha1.RunnerTemplate) {}), hash(func(r *v1alpha1.RunnerTemplate) { r.UserAssignment = v1alpha1.UserFromTemplate }))
	require.NotEqual(t, hash(func(*v1alpha1.RunnerTemplate) {}), hash(func(r *v1alpha1.RunnerTemplate) { r.UserAssignment = v1alpha1.UserFromCluster }))
}
