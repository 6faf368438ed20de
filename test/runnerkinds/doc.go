// Package runnerkinds is what users of runners that register themselves expect, item by item: what the field's oldest system
// does right and is matched here, and what it lacks and is done better, with the tests that show it. docs/reference/runner-kinds.md
// is written from it by `make generate`.
//
// Begin with Item in document.go.
package runnerkinds
