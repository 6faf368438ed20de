// Package incidents is what went wrong with fleets like this one, and what happens here under the same conditions. Each incident is an
// entry of the registry: a Go value with the name of the test that shows it. The scenarios beside the registry reproduce the original
// conditions on the real components, and where it can be done they also let the older behaviour fail, so that a scenario that shows nothing
// is noticed. docs/incidents.md is generated from the registry by `make generate`.
//
// Begin with Incident in registry.go; world_test.go is a server without a cluster, and fleet_test.go a whole Bullpen.
package incidents
