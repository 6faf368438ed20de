// Package charts carries the manifests that the Helm chart, the one-machine mode and the tests all apply: the
// CustomResourceDefinitions and the least-privilege roles. There is one copy of each, so that what the tests ran under
// is what gets installed.
//
// It imports the standard library only. The CustomResourceDefinitions are generated from api/ by controller-gen; the
// roles are written by hand.
package charts
