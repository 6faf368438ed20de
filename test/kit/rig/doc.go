// Package rig puts a whole Bullpen together in one process, for tests that need many pods: a real API server with the
// shipped roles, the real server on a real Postgres, the real controller, node agents, and the GitHub stand-in. What is
// synthetic is the inside of the pods: a poller is the agent's own code in a goroutine, with a token that its node
// agent asked for, and a runner is the development runner in another. So a job is claimed, minted, acknowledged, run
// and ended as anywhere, and a pod costs two goroutines.
//
// Begin with Start in fleet.go; pods.go is what runs in the pods, calls.go counts who calls whom.
package rig
