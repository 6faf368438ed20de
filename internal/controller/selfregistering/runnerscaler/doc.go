// Package runnerscaler decides how many runners RunnerDeployments and RunnerSets with autoscaling have, and writes that into
// their status.autoscaling, which nobody else writes. Every few seconds it asks the server once for all of them which jobs wait
// and run; beside that it reads GitHub's own queue, each owner's by itself, so that one whose credentials or repositories are
// broken delays no other. What it decides is package selfregistering's.
//
// Begin with scaler.go. observe.go makes values of what the cache holds, queue.go reads GitHub's queue, publish.go writes.
package runnerscaler
