// Package soak runs the whole system on one machine under random faults from a printed seed, and has an independent checker report the
// result. Servers, controller, node agents, machines, Postgres and the control plane are processes of their own, which are killed, frozen
// and cut off; GitHub is the stand-in, which lies, fails and loses.
//
// Package schedule beside this one decides what happens when, and package check whether it went well: it reads the records of GitHub, the
// API server, Postgres and the machines, and trusts no other source. See docs/internals/soak.md.
//
// Begin with Run (run.go); system.go starts everything, and faults.go breaks it.
package soak
