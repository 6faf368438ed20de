// Package runnerset backs the runners of a RunnerSet with StatefulSets of one pod each, so that each finds the volumes that the
// last one of its number left. All that is decided of them is runnerowner's and the engine's.
//
// A StatefulSet begins without a pod; it is given one when the runner's registration lies in its Secret (tend.go). Names are used
// again, registrations and selectors never. Begin with backing.go.
package runnerset
