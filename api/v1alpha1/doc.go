// Package v1alpha1 holds the kinds of the API group bullpen.dev: their fields, markers and defaults, and no
// behaviour.
//
// The CustomResourceDefinitions in charts/bullpen/crds and the deep-copy functions are generated from the markers here.
// Begin with runnerpool_types.go.
//
// +kubebuilder:object:generate=true
// +groupName=bullpen.dev
package v1alpha1
