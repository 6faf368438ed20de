// Package charts carries the manifests that the Helm chart, the one-machine mode and the tests all apply: the
// CustomResourceDefinitions, the least-privilege roles, and the admission policies with the disruption budget. There is one
// copy of each, so that what the tests ran under is what gets installed.
//
// It imports the standard library only. The CustomResourceDefinitions are generated from api/ by controller-gen; the
// rest is written by hand.
package charts
