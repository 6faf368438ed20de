// Package growth reports whether something grows that must not: it holds what was sampled of a fleet at counts of jobs, judges it, and
// shows it as a table and a plot. It does no I/O, and asks no clock: package scale samples.
//
// Begin with Run.Growing in growth.go; svg.go draws.
package growth
