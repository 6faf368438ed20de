package runnerpod

import (
	"maps"
	"slices"
	"strings"
)

// ownershipPrefixes and ownershipKeys are labels and annotations by which a tool finds the objects that it has applied.
var (
	ownershipPrefixes = []string{
		"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", // Flux
		"meta.helm.sh/", "helm.sh/", // Helm
		"objectset.rio.cattle.io/", // Fleet
		"kapp.k14s.io/",
	}
	ownershipKeys = []string{
		"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/installation-id",
		"app.kubernetes.io/managed-by",
		"config.k8s.io/owning-inventory", "configsync.gke.io/declared-fields",
		"kubectl.kubernetes.io/last-applied-configuration",
	}
)

// OwnershipMark reports whether a label or annotation is a mark of ownership. On an object that the product makes, the tool would take it for
// one that it has applied and that is no longer wanted, and delete it (RUN-9).
func OwnershipMark(key string) bool {
	return slices.Contains(ownershipKeys, key) ||
		slices.ContainsFunc(ownershipPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// WithoutOwnershipMarks is a copy of labels or annotations that may be given to an object of the product's (RUN-9).
func WithoutOwnershipMarks(given map[string]string) map[string]string {
	kept := maps.Clone(given)
	maps.DeleteFunc(kept, func(key, _ string) bool { return OwnershipMark(key) })
	return kept
}
