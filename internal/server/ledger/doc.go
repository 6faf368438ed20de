// Package ledger is the ledger: the only package that speaks SQL. Each exported method of Store is one transaction; what it
// decides is decided by the pure functions of package dispatch, between reading and writing.
//
// Rows are locked in one order everywhere: account limits, then claims (by pod UID), then jobs (by id), then lanes. Begin
// with migrations/ for the tables, queries/ for the statements (sqlc makes sqlcgen/ of them), then events.go for what an
// event does and batch.go for admission.
//
// # How migrations are written
//
// A migration runs on a live ledger, with servers of the former version on it, which continue until they are replaced.
// Those up to 00013 are the first release's, and meet an empty database. Every later one
//
//   - adds and removes nothing: no column, table or constraint is dropped, renamed or changes its type, before no server that
//     knows it is left, which is the next release but one. A new column has a default or is nullable, for the rows of servers
//     that do not know it, and readers take the default for "unknown".
//   - sets lock_timeout, both ways: SET LOCAL, or SET and RESET where there is no transaction. A statement that waits for a
//     lock behind a long transaction blocks every later one; one that gives up is run again.
//   - builds an index on a table that was there before in a file of its own, with "+goose NO TRANSACTION", by CREATE INDEX
//     CONCURRENTLY, after DROP INDEX CONCURRENTLY IF EXISTS: one that failed half-way is left behind, and invalid.
//
// A test in test/architecture holds them to it. Servers that wait for another's migrations hold no snapshot in the meantime
// (takeTurn): an index that is built concurrently would wait for them, and they for it.
package ledger
