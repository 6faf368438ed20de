// Package removal is the one place that deletes runner pods, of pools and of runners that register themselves alike
// (EXCL-2). Whoever wants a pod gone brings it as it was observed, and the fence's grant.
//
// The rule itself is lifecycle.Remove; this package carries it out against the API server.
package removal
