// Package lifecycle plans for every owner of runners: which to create, which to ask the fence for, which to delete.
// The plan is a pure function of what was observed and a clock reading; it knows no cluster, no database and no
// GitHub, and imports the standard library and fleet only. Begin with plan.go; the Fence port is in fence.go.
package lifecycle
