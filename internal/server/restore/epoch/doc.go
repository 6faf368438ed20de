// Package epoch notices that the database is an older one, or another one, than the fleet's last, and keeps every replica from dispatching
// and from granting removals until the lost rows have been rebuilt from pods and from GitHub (CLAIM-17).
//
// The database carries a lineage, drawn when it was made, and an epoch, which some replica raises every few seconds. Both
// are copied into Kubernetes after each commit, so that a database behind its copy has lost something. Every claim,
// take-over, mint and retirement checks in its own statement that the row is not behind what its replica knows.
//
// judge.go is the decision, pure; keeper.go acts on it. Dispatch, the database and the cluster are ports.
package epoch
