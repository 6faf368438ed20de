// Package admin is the operators' HTTP API: /api/v1. It says who asks, asks Kubernetes whether they may, decodes,
// calls the store and encodes. It denies by default: a path without a rule cannot be registered.
//
// It decides nothing about jobs. Begin with handler.go; its ports are in ports.go.
package admin
