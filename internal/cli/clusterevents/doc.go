// Package clusterevents reads Kubernetes' Events about runners, pools and the like, of Bullpen's components and the cluster's, with the
// caller's rights. Kubernetes deletes them after an hour by default; what must be kept is in the ledger's audit log.
//
// Begin with Read and Follow; event.go has the text of an Event, the selection, and the order.
package clusterevents
