// Package cli is what the operators' commands share: finding the server, proving who asks, speaking to /api/v1, and
// printing tables, JSON and YAML. The commands themselves are in cmd/bullpen, a file each.
//
// Begin with session.go.
package cli
