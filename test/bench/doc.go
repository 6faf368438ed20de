// Package bench measures what a user of the fleet would feel, as a ratio to a limit that is measured in the same run,
// or as a count; absolute times say little on shared machines. `make bench` runs it and prints one table. A row that
// misses its budget is marked, and fails nothing: a slow machine is not a bug.
//
// It has tests only. rig_test.go puts the real server together on a real, durable Postgres; the files beside it hold a row each.
package bench
