// Package clusterevents reads what the fleet's parts, and the cluster's, wrote about runners, pools and the like: Kubernetes' Events, with the rights of
// whoever asks. Kubernetes forgets them after an hour unless it is told otherwise; what must be kept is in the ledger's audit log.
//
// Begin with Read and Follow; event.go decides what an Event says, which are wanted, and in which order.
package clusterevents
