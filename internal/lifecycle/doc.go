// Package lifecycle plans for every owner of runners: which to create, which to ask the fence for, which to delete.
// The plan is a pure function of what was observed and a clock reading; it knows no cluster, no database and no
// GitHub, and imports the standard library and fleet only.
//
// Begin with plan.go. runner.go has what goes in and what comes out, set.go the order in which a plan looks at
// runners, and fence.go the Fence port: whoever deletes a runner holds its grant.
//
// There are no counters of expected creations and deletions. An owner's observer puts a runner it has just created
// into the set at once, marked Expected, and marks one whose deletion was accepted as Deleting; both count until the
// cache shows otherwise. These marks survive no restart and need not: after one, the fence and the deletion's
// preconditions keep the fleet safe.
package lifecycle
