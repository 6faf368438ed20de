// Package selfregistering decides how many self-registering runners one owner (a RunnerDeployment, a RunnerSet) has: what the
// server and GitHub's queue say of jobs, what the owner's runners do, schedules and history in, one number out. It is a pure
// function of its input, clock reading included.
//
// Begin with decide.go. input.go has what goes in and comes out, demand.go makes one set of jobs out of what several sources
// say, schedule.go knows when a schedule is active, percentage.go goes by the share of runners that work, and window.go keeps
// a number from falling too soon.
package selfregistering
