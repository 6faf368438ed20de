// Package httpserver makes the HTTP servers of every part, with bounds on what a client can take before it is known (TEN-3).
//
//   - server.go: a server with bounds on its requests' headers
//   - connections.go: a bound on the connections of a server that any client can reach
package httpserver
