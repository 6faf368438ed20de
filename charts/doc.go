// Package charts carries the Helm chart, and what it renders to for the one-machine mode: the CustomResourceDefinitions,
// the least-privilege roles, the admission policies with the disruption budget, and the network policies. There is one source of each, so that
// what the tests and the one-machine mode run under is what gets installed.
//
// The CustomResourceDefinitions are generated from api/ by controller-gen, the directory rendered by scripts/chart from
// the chart's templates; the rest is written by hand.
package charts
