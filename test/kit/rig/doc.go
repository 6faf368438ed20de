// Package rig runs a whole Bullpen in one process, for tests that need many pods: a real API server with the shipped roles, the real server
// on a real Postgres, the real controller, node agents, and the GitHub stand-in. Only the inside of the pods is synthetic: a poller is the
// agent's own code in a goroutine, with a token that its node agent requested, and a runner is the development runner in another. So a job
// is claimed, minted, acknowledged, run and completed as in production, and a pod costs two goroutines.
//
// Begin with Start in fleet.go; pods.go is what runs in the pods, calls.go counts who calls whom.
package rig
