// Package cli is what the administrators' commands share: finding the server, authenticating, the client of /api/v1, and
// printing tables, JSON and YAML. The commands themselves are in cmd/bullpen, a file each.
//
// Begin with session.go.
package cli
