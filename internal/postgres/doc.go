// Package postgres is the ledger: the only package that speaks SQL. Each exported method of Store is one
// transaction; what it decides is decided by the pure functions of package dispatch, between reading and writing.
//
// Rows are locked in one order everywhere: account limits, then claims (by pod UID), then jobs (by id), then lanes.
// Begin with migrations/ for the tables, queries/ for the statements (sqlc makes sqlcgen/ of them), then events.go
// for what an event does and batch.go for admission. It must not import a Kubernetes client or an HTTP server.
package postgres
