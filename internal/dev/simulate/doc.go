// Package simulate plays a trace of jobs against pools by a virtual clock: how long would which job have been queued, and what would it
// have cost, had the pools been like this. It decides nothing itself. The number of runners is scaling.Plan's and lifecycle.MakePlan's
// answer, demand dispatch.Demand's, the next job dispatch.Admit's, WithinShares' and Choose's, whether a mint may begin
// dispatch.MintLimiter's, and the meaning of a RunnerPool's fields poolspec's: the functions that a fleet runs on. What lives in SQL is
// written again in ledger.go, and a test plays the same histories against PostgreSQL.
//
// One run uses one goroutine, no clock and one seeded source of randomness: the same input gives the same bytes.
//
// Begin with simulation.go, the clock and its events. pool.go has a pool's runners, scaler.go the autoscaler's passes, ledger.go the queue,
// trace.go and policy.go the inputs, shapes.go the generated traces, result.go the results.
package simulate
