// Package health decides whether a service is healthy, as Docker's daemon does (moby/moby), and words what the log of the job
// says about it. It is a function of values: the caller runs the checks and has the clock.
package health
