// Package clock gives a server replica the database's time, so that all replicas agree about when something happened and
// how long ago that is, whatever their own clocks say.
//
// A [Clock] asks the database, and in between adds what has passed on this process's monotonic clock, which cannot be set.
// Begin with [New].
package clock
