// Package cluster is what the server sees of Kubernetes: runner pods, their ServiceAccounts and the pools from a
// watch, token reviews, the owner label it stamps, and one uncached read. It turns client-go objects into plain
// values; none of them leaves this package.
//
// It decides nothing. Begin with View.
package cluster
