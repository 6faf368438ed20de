// Package terminationlog keeps a container's termination message small. It is a file of the kubelet on the node, which every user of the container
// can write, and which Kubernetes counts toward no limit.
package terminationlog
