// Package portforward connects administrators' commands to the server of a release in a cluster: it finds the Service for administrators, and
// forwards a local port to a ready pod of it, as kubectl port-forward does.
//
// Begin with forwarder.go. release.go decides which Service, pod and port, and reads nothing.
package portforward
