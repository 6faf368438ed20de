// Package portforwardtest is a cluster with a release of the chart, for tests of port-forwards. Those are served by Kubernetes' own kubelet and
// API server code; lists of Services and pods, and tokens of ServiceAccounts, are written here. Begin with cluster.go.
package portforwardtest
