// Package runnerscaler decides how many runners RunnerDeployments and RunnerSets with autoscaling have, and is the only writer of their
// status.autoscaling. Every few seconds it asks the server, once for all of them, which jobs are queued and running. In addition it reads
// GitHub's own queue, separately for each owner, so that broken credentials or repositories of one delay no other. The decision itself is
// in package selfregistering.
//
// Begin with scaler.go. observe.go makes values of what the cache holds, queue.go reads GitHub's queue, publish.go writes.
package runnerscaler
