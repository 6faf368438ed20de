// Package removal is the only place that deletes runner pods, both of pools and of self-registering runners (EXCL-2). Callers pass the pod
// as observed, and the fence's grant.
//
// The rule itself is lifecycle.Remove; this package carries it out against the API server.
package removal
