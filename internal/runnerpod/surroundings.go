package runnerpod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Surroundings are what a pod takes from its cluster, beside its pool's template. They are in no hash: a change of the cluster replaces no
// runner.
type Surroundings struct {
	// PullSecrets are those of the namespace's ServiceAccount default, which pods with an account of their own would lack (POD-4).
	PullSecrets []corev1.LocalObjectReference
	// Architecture is what runners need that choose none (POD-5); empty for any.
	Architecture v1alpha1.Architecture
	// ImageHosts are hostname labels of nodes that have the pod's images, BareHosts those of nodes that lack them. Runners prefer the former,
	// and avoid the latter if they can.
	ImageHosts, BareHosts []string
}

// imagesWeight is how much a node with the images counts among the preferences of a template, whose weights go from 1 to 100.
const imagesWeight = 50

// fit puts a pod and its ServiceAccount into these surroundings.
func (s Surroundings) fit(pod *corev1.Pod, account *corev1.ServiceAccount) {
	for _, secret := range s.PullSecrets {
		if secret.Name != "" && !slices.Contains(pod.Spec.ImagePullSecrets, secret) {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, secret)
		}
	}
	account.ImagePullSecrets = slices.Clone(pod.Spec.ImagePullSecrets)
	if s.Architecture != "" && !choosesArchitecture(&pod.Spec) {
		selector := maps.Clone(pod.Spec.NodeSelector)
		if selector == nil {
			selector = map[string]string{}
		}
		selector[corev1.LabelArchStable] = string(s.Architecture)
		pod.Spec.NodeSelector = selector
	}
	preferImages(&pod.Spec, corev1.NodeSelectorOpIn, s.ImageHosts)
	preferImages(&pod.Spec, corev1.NodeSelectorOpNotIn, s.BareHosts)
}

func preferImages(spec *corev1.PodSpec, operator corev1.NodeSelectorOperator, hosts []string) {
	if len(hosts) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	preferred := &spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	*preferred = append(*preferred, corev1.PreferredSchedulingTerm{Weight: imagesWeight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: operator, Values: slices.Clone(hosts)}},
	}})
}

// nodeSelectorOf is the template's, and the pool's architecture.
func nodeSelectorOf(pool *v1alpha1.RunnerPool) map[string]string {
	selector := pool.Spec.Template.NodeSelector
	if pool.Spec.Architecture == "" {
		return selector
	}
	selector = maps.Clone(selector)
	if selector == nil {
		selector = map[string]string{}
	}
	selector[corev1.LabelArchStable] = string(pool.Spec.Architecture)
	return selector
}

// checkArchitecture repeats what the API server has checked, for pools that came past it.
func checkArchitecture(pool *v1alpha1.RunnerPool) error {
	want, selected := pool.Spec.Architecture, pool.Spec.Template.NodeSelector[corev1.LabelArchStable]
	switch {
	case want == "":
		return nil
	case want.RunnerLabel() == "":
		return refuse("spec.architecture is %s: set it to amd64 or arm64", want)
	case selected != "" && selected != string(want):
		return refuse("spec.template.nodeSelector has %s=%s, but spec.architecture is %s: remove one of them", corev1.LabelArchStable, selected, want)
	case pool.Spec.Platform == v1alpha1.PlatformMacOS && want != v1alpha1.ArchitectureARM64:
		return refuse("spec.architecture is %s, but macOS runners are virtual machines on Apple silicon: remove it", want)
	}
	return nil
}

// ArchitectureOf is the architecture of a pool's runners; empty where the pool leaves it to the cluster.
func ArchitectureOf(pool *v1alpha1.RunnerPool) v1alpha1.Architecture {
	if pool.Spec.Platform == v1alpha1.PlatformMacOS {
		return v1alpha1.ArchitectureARM64
	}
	return v1alpha1.Architecture(nodeSelectorOf(pool)[corev1.LabelArchStable])
}

// choosesArchitecture reports whether a pod asks for an architecture, or for Macs, by its node selector or its required node affinity.
func choosesArchitecture(spec *corev1.PodSpec) bool {
	if spec.NodeSelector[corev1.LabelArchStable] != "" || spec.NodeSelector[corev1.LabelOSStable] == darwin {
		return true
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	asks := func(r corev1.NodeSelectorRequirement) bool { return r.Key == corev1.LabelArchStable }
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if slices.ContainsFunc(term.MatchExpressions, asks) {
			return true
		}
	}
	return false
}

// DefaultArchitecture is what runners need that choose no architecture, in a cluster of these nodes (POD-5). While all
// nodes for Linux have one architecture, or none reports one, they need none. Where the nodes differ an image of one
// architecture would start on some of them only: the runners need amd64, or, without such nodes, the first by name.
func DefaultArchitecture(nodes []*corev1.Node) v1alpha1.Architecture {
	found := map[string]bool{}
	for _, node := range nodes {
		system, said := node.Labels[corev1.LabelOSStable]
		if name := node.Labels[corev1.LabelArchStable]; name != "" && (!said || system == string(corev1.Linux)) {
			found[name] = true
		}
	}
	switch {
	case len(found) < 2:
		return ""
	case found[string(v1alpha1.ArchitectureAMD64)]:
		return v1alpha1.ArchitectureAMD64
	default:
		return v1alpha1.Architecture(slices.Sorted(maps.Keys(found))[0])
	}
}
