// Package model walks every interleaving of the claim protocol, within small bounds, and looks for a broken rule: an
// explicit-state checker that drives the product's own pure functions.
//
// What decides in the product decides here: fleet's two transition tables, dispatch.Resolve, Decide, Admit, Choose,
// NextGeneration and RetireVerdict, lifecycle.MakePlan and MayDelete. They are the fields of rules, so that a test can
// put a mutant in the place of one and see which rule breaks. What decides in a statement of SQL, or in the order of two
// calls, is re-stated, and can be left out by a field of without. recovery.go asks
// recovery's Judge, as the passes do, and re-states what its verdicts do.
//
// Begin with state.go (what there is), then the actors: poll.go, pod.go, stop.go, controller.go, github.go, recovery.go.
// invariants.go has what must hold, search.go walks, liveness.go looks for states that nothing leads out of, trace.go
// tells in words how a rule was broken. docs/internals/protocol-model.md has the bounds and the results.
package model
