// Package runnerpod is what the server, the controller, the node agent and the in-pod agent agree on about a runner
// pod: the keys of its labels and annotations, the names of its containers, the files and variables through which
// they speak, and how a runner's name is made from a pod's UID.
package runnerpod
