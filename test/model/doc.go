// Package model walks every interleaving of the claim protocol, within small bounds, and looks for a broken rule: an
// explicit-state checker that drives the product's own pure functions.
//
// The product's decisions are its own functions here: fleet's two transition tables, dispatch.Resolve, Decide, Admit, Choose,
// NextGeneration and RetireVerdict, lifecycle.MakePlan, MayDelete and Leave. They are the fields of rules, so that a test can put a mutant in
// the place of one and see which rule breaks. Decisions in a statement of SQL, or in the order of two calls, are re-stated, and can be left out
// by a field of without. recovery.go asks recovery's Judge, as the passes do, and re-states the effect of its verdicts.
//
// Begin with state.go (the state), then the actors: poll.go, pod.go, stop.go, controller.go (leave.go), github.go, recovery.go. invariants.go has the
// invariants, search.go walks, liveness.go looks for dead ends, trace.go explains how a rule was broken. docs/internals/protocol-model.md
// has the bounds and the results.
package model
