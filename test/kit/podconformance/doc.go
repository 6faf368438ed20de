// Package podconformance compares what a node does with pods with what a kubelet does.
//
// The suite is a table of rows. Each row creates a pod or two and checks one fact of Kubernetes: a mode, an exit code, an order. The facts are
// taken from Kubernetes' documentation and from the source of the kubelet 1.36; each row names where. The suite needs a Kubernetes client, a node
// and an image with /bin/sh and coreutils. It runs against Bullpen's own node agent and against a real kubelet.
//
// A node may differ from a kubelet in some rows, for a reason. Such a Difference is listed for that node, and the row must fail: a difference
// that has disappeared fails the suite, as does a new one. The list of the node agent is in differences.go, and docs/guides/nodes.md shows it.
//
// Rows run concurrently, wait by watch, and each has a time limit (TEN-9). Begin with Run in suite.go.
package podconformance
