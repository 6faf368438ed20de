// Package simulate plays a trace of jobs against pools by a virtual clock: what would have waited how long, and what would it
// have cost, had the pools been like this. It decides nothing itself. How many runners there are is scaling.Plan's and
// lifecycle.MakePlan's answer, what is demanded dispatch.Demand's, who is next dispatch.Admit's, WithinShares' and Choose's,
// whether a mint may begin dispatch.MintLimiter's, and what a field of a RunnerPool means poolspec's: the functions that a
// fleet runs by. What lives in SQL is written again in ledger.go, and a test plays the same histories against PostgreSQL.
//
// One run uses one goroutine, no clock and one seeded source of randomness: the same input gives the same bytes.
//
// Begin with simulation.go, the clock and what happens by it. pool.go has a pool's runners, scaler.go the autoscaler's
// passes, ledger.go the queue, trace.go and policy.go what is read, shapes.go the traces that are made, result.go what comes
// out.
package simulate
