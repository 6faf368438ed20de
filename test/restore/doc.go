// Package restore restores older databases, and empty ones, under running and stopped servers, and checks what becomes of
// the busy runners (CLAIM-17): two replicas of dispatch with everything that rebuilds claims, on a real Postgres that is
// really restored, with a GitHub and a cluster in memory. Begin with restore_test.go.
package restore
