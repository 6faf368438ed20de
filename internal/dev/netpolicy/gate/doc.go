// Package gate stands in for a network plug-in where pods have no network of their own. It lies between runner pods and the
// server, and lets through what the cluster's NetworkPolicies allow (package netpolicy): it refuses connections that
// they do not allow, and cuts established ones at the moment when the watch shows that they are no longer allowed. A real
// network plug-in may leave those alone; so what holds here, holds there.
//
// Which pod a connection is of is read from the token of its first request, unverified: pods that share their machine's
// network could claim to be another, and the server verifies the token. So the gate shows that everything works under the
// policies; it is no protection from a hostile job.
//
// Begin with Gate.Run.
package gate
