// Package tracing exports by OpenTelemetry what a workflow job went through: one trace for each job, from GitHub's event to
// its end.
//
// A trace's id follows from the job's id at GitHub alone, and so does the id of the span that all others are part of. So
// every replica, before and after any restart, adds to the same trace, nothing has to be carried from one to the other or
// kept in the ledger, and the job's id is enough to find its trace.
//
// Spans are exported when they are over, with the times at which things happened. Some are what a replica did (webhook,
// claim, mint); the phases, and the job itself, are what the ledger has recorded, once each, by the transaction that
// recorded it.
package tracing
