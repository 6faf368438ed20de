// Package servers is the configuration file of administrators' commands: servers by name, and the current one. The file has no secrets:
// a kubeconfig authenticates.
//
// Begin with file.go.
package servers
