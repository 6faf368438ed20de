// Package v1alpha1 holds the kinds of the API group bullpen.dev: their fields, markers and defaults, and no
// behaviour.
//
// It imports k8s.io/api and k8s.io/apimachinery only, so that anything which speaks to the cluster can afford it. The
// CustomResourceDefinitions in charts/bullpen/crds and the deep-copy functions are generated from the markers here.
// Begin with runnerpool_types.go.
//
// +kubebuilder:object:generate=true
// +groupName=bullpen.dev
package v1alpha1
