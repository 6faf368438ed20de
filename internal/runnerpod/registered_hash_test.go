package runnerpod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func TestRegisteredHash_IsOfWhatShapesARunner(t *testing.T) {
	hash := func(spec *v1alpha1.RunnerSpec, more ...any) string {
		h, err := RegisteredHash(spec, testOptions, more...)
		require.NoError(t, err)
		require.Regexp(t, "^[0-9a-f]{32}$", h)
		return h
	}
	limits := func(cpu, memory string) func(*v1alpha1.RunnerSpec) {
		return func(s *v1alpha1.RunnerSpec) {
			s.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			}
		}
	}
	base := hash(registeredSpec(limits("0.5", "1Gi")))
	for name, equal := range map[string]*v1alpha1.RunnerSpec{
		"milli": registeredSpec(limits("500m", "1024Mi")),
		"bytes": registeredSpec(limits("5e-1", "1073741824")),
		"defaults": registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) {
			s.Ephemeral, s.ContainerMode, s.WorkFolder = ptr.To(true), "None", "_work"
		}),
		"nothing, twice": registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) {
			s.Template.Labels = map[string]string{}
			s.Template.Spec.Volumes = []corev1.Volume{}
		}),
		"the time-out": registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) {
			s.RegistrationTimeout = &metav1.Duration{Duration: 1}
		}),
	} {
		require.Equal(t, base, hash(equal), name)
	}
	through := registeredSpec(limits("500m", "1Gi"))
	text, err := json.Marshal(through)
	require.NoError(t, err)
	var read v1alpha1.RunnerSpec
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, base, hash(&read), "as it comes back from the API server")

	seen := map[string]string{base: "base"}
	for name, other := range map[string]*v1alpha1.RunnerSpec{
		"cpu":        registeredSpec(limits("501m", "1Gi")),
		"memory":     registeredSpec(limits("500m", "1G")),
		"static":     registeredSpec(limits("500m", "1Gi"), static),
		"image":      registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) { s.Template.Spec.Containers[0].Image = "runner:2" }),
		"label":      registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) { s.Labels = []string{"cpu"} }),
		"repository": registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) { s.Repository = "acme/other" }),
		"secret":     registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) { s.Credentials = &v1alpha1.GitHubCredentials{SecretName: "x"} }),
		"zero":       registeredSpec(limits("500m", "1Gi"), func(s *v1alpha1.RunnerSpec) { s.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) }),
	} {
		h := hash(other)
		require.Empty(t, seen[h], name)
		seen[h] = name
	}
	claim := v1alpha1.VolumeClaimTemplate{Name: "disk", Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	same := claim.DeepCopy()
	same.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1024Mi")
	require.Equal(t, hash(through, []v1alpha1.VolumeClaimTemplate{claim}), hash(through, []v1alpha1.VolumeClaimTemplate{*same}))
	require.NotEqual(t, base, hash(through, []v1alpha1.VolumeClaimTemplate{claim}))
	require.NotEqual(t, hash(through, "a", "b"), hash(through, "ab", ""), "parts do not run into each other")
}

// The API server gives labels in any order of its maps, and people write quantities as they like.
// F 8.11: another version of the product that hashes otherwise replaces every idle runner of every installation when it is rolled out.
// A change of these is a decision: raise registeredHashVersion, and tell it in the release's notes.
func TestRegisteredHash_F811_IsWhatItWasInEveryVersion(t *testing.T) {
	options := Options{DispatchURL: "http://server", AgentImage: "agent:1"}
	claim := v1alpha1.VolumeClaimTemplate{Name: "disk", Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	everything := registeredSpec(dind, func(s *v1alpha1.RunnerSpec) {
		s.Group, s.WorkFolder = "big", "work"
		s.Credentials = &v1alpha1.GitHubCredentials{SecretName: "pat"}
		s.Template.Labels = map[string]string{"b": "2", "a": "1"}
		p := &s.Template.Spec
		p.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("2Gi")}
		p.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
		p.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](0)}}
		p.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](0)}
	})
	for name, c := range map[string]struct {
		spec *v1alpha1.RunnerSpec
		more []any
		want string
	}{
		"defaults":           {registeredSpec(), nil, "342287bd2df6317382096002899e6404"},
		"static":             {registeredSpec(static), nil, "1d6034dd6f37eab9f1307e0a5e6ee302"},
		"kubernetes":         {registeredSpec(kubernetes), nil, "ac1d47d2a8c694ea7aee11d29f6d3a2c"},
		"everything":         {everything, nil, "a91626480a387f849d1285f088af56b7"},
		"with volume claims": {registeredSpec(), []any{[]v1alpha1.VolumeClaimTemplate{claim}}, "1af949983afb67321b51b5e03208543f"},
		"with metadata":      {registeredSpec(), []any{v1alpha1.TemplateMetadata{Labels: map[string]string{"team": "a"}}}, "436cbd27aac695aca1d88abbaba512d3"},
	} {
		got, err := RegisteredHash(c.spec, options, c.more...)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, name)
	}
}

func TestRegisteredHash_EqualSpecsHashEqually(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := anySpec(t)
		milli := rapid.Int64Range(1, 1<<40).Draw(t, "milli")
		amount := *resource.NewMilliQuantity(milli, resource.DecimalSI)
		spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/x": amount}
		one, err := RegisteredHash(spec, testOptions)
		require.NoError(t, err)
		for _, written := range []string{fmt.Sprintf("%dm", milli), fmt.Sprintf("%d.%03d", milli/1000, milli%1000), fmt.Sprintf("%de-3", milli)} {
			other := spec.DeepCopy()
			other.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/x": resource.MustParse(written)}
			slices.Reverse(other.Labels)
			two, err := RegisteredHash(other, testOptions)
			require.NoError(t, err)
			require.Equal(t, one, two, written)
		}
	})
}

func TestNames_AreDistinguished(t *testing.T) {
	_, err := BuildRegistered(registered(registeredSpec(func(s *v1alpha1.RunnerSpec) { s.Template.Spec.Containers = nil })), testOptions)
	require.True(t, strings.HasPrefix(err.Error(), "template.spec.containers"), "the sentence names the field: %v", err)
}
