// Package admin is the HTTP API for administrators: /api/v1. It authenticates the client, authorizes it by Kubernetes, decodes, calls the
// store and encodes. It denies by default: a path without a rule cannot be registered.
//
// It decides nothing about jobs. Begin with handler.go; its ports are in ports.go.
package admin
