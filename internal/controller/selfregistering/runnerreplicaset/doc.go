// Package runnerreplicaset backs the runners of a RunnerReplicaSet with Runners. All that is decided of them is runnerowner's and
// the engine's; a Runner itself, its registration and its pod, is package runner's. Begin with backing.go.
package runnerreplicaset
