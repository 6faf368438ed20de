// Package poolaudit records changes of RunnerPools in the audit log. They are written at the API server, by any client with the right to, so
// the server sees them in its watch only.
//
// Begin with change.go, which is pure: what changed, and what the API server says of its author. auditor.go records each generation once.
package poolaudit
