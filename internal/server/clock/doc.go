// Package clock tells a server replica the time by the database's clock, so that all replicas agree about when something
// happened and how long ago that is, whatever their own clocks say.
//
// A [Clock] asks the database, and in between goes by what has passed on this process's monotonic clock, which nobody can set.
// Begin with [New].
package clock
