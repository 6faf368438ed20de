// Package periodic runs periodic work, each pass by one replica at a time, and targeted checks of single pods by any replica, on River's
// queue.
//
// No replica is in charge of the schedule. Every replica reads the table passes, by the database's clock, and queues
// those of its own list that are due; whichever replica knows the pass takes it off the queue and runs it, under an
// advisory lock of the database. River's leader has nothing but housekeeping to do (rows of jobs whose worker died, rows
// that are old), which is the same for every list. So a leader that knows no pass, or dies every few seconds, halts
// none: see docs/adr/0012-passes-without-a-leader.md.
//
// It speaks SQL, beside package ledger, because River does: its own statements are in turns.go. Begin with Runner.Run,
// then turn.go for how one pass runs.
package periodic
