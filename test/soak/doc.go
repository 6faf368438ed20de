// Package soak runs the whole system on one machine under random faults from a printed seed, and has an independent
// checker say what came of it. Servers, controller, node agents, machines, Postgres and the control plane are processes of
// their own, which are killed, frozen and cut off; GitHub is the stand-in, which lies, fails and loses.
//
// What happens when is decided by package schedule beside this one, and whether it went well by package check, which reads
// what GitHub, the API server, Postgres and the machines have each written down, and trusts no other source. See
// docs/internals/soak.md.
//
// Begin with Run (run.go); system.go brings everything up, and faults.go breaks it.
package soak
