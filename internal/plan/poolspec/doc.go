// Package poolspec reads a RunnerPool's spec into the values that dispatch, scaling and lifecycle plan with: defaults that
// the API server would have filled in, percentages of what they are percentages of. It is where a field gets its meaning, for
// the programs that run a fleet and for the simulator alike, so that the two cannot come to disagree.
//
// Its functions are pure. Begin with poolspec.go.
package poolspec
