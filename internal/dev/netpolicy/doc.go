// Package netpolicy evaluates Kubernetes' NetworkPolicies: which of them select a pod, which peers and ports that resolves to at this
// moment, and whether a connection is allowed. It is what a network plug-in computes before it programs anything, without the programming.
//
// Tests verify with it that rolling the server changes nothing for a pod mid-job (NET-1) and that such a pod does not reach the dispatch
// API (NET-2); the one-machine mode, which has no network plug-in, enforces with it what it can.
//
// Where the API leaves the meaning to the network plug-in, it chooses: pods in their host's network are neither selected nor peers; an
// ipBlock also matches the addresses of pods, which is the least safe reading; pods that have ended are no peers, for their addresses may
// be reused by now; a named port of a peer that is no pod matches nothing.
//
// It is a pure function of the objects. Begin with New.
package netpolicy
