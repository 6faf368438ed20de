// Package load makes jobs at a stated rate and says where their time went: the load generator of `bullpen dev load`.
//
// When which run is submitted (schedule.go), what it consists of (mix.go), statistics (stats.go) and how they are shown
// (text.go, svg.go) are pure: the same input and seed give the same output. run.go submits by that schedule and reads what
// became of the jobs, through ports and an injected clock.
//
// Begin with run.go.
package load
