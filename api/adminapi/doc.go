// Package adminapi is the contract between the server's operators' API (/api/v1) and its clients: paths, the JSON that
// travels, and what a status means. Begin with operatorapi.go.
package adminapi
