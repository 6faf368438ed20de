// Package selfregistering decides how many self-registering runners one owner (a RunnerDeployment, a RunnerSet) has. In go
// the jobs that the server and GitHub's queue report, the state of the owner's runners, schedules and history; out comes
// one number. It is a pure function of its input, clock reading included.
//
// Begin with decide.go. input.go has the inputs and outputs, demand.go makes one set of jobs out of what several sources
// report, schedule.go knows when a schedule is active, percentage.go scales by the share of busy runners, and window.go
// keeps a number from falling too soon.
package selfregistering
