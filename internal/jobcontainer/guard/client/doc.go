// Package client asks the guard of a container through its socket: it starts processes in the container, and whatever else the job needs
// there. One connection for each request; a Client has no state and may be used by many goroutines. Begin with client.go.
package client
