// Package relay passes TCP connections on from an address to another one. In the one-machine mode with containers it runs in a pod with the
// labels of the server's pods: network policies select pods, and the server is a process of the machine.
//
// Begin with Serve.
package relay
