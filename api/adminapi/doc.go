// Package adminapi is the contract between the server's administrators' API (/api/v1) and its clients: paths, the JSON that
// travels, and what a status means. Begin with adminapi.go.
package adminapi
