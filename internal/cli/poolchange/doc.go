// Package poolchange decides how fields of a RunnerPool change: which requests have no effect and are rejected, what is different already, and
// which other managers have the fields.
//
// Begin with Decide in change.go; managers.go reads metadata.managedFields.
package poolchange
