// Package catchup finds what webhooks did not deliver: deliveries that never arrived, and jobs without any delivery. It reads GitHub's list
// of deliveries, sweeps the queues of repositories, asks about jobs that have been waiting for long, and on request re-runs jobs whose node
// died. Its results reach the ledger on the path of webhooks (package intake), so the same tables decide and a tombstone bars the same late
// news.
//
// Every pass is bounded, continues where the last one stopped, and spends no more than a stated share of what GitHub's
// rate-limit headers say is left (quota.go). A pass can be cut off anywhere. Begin with passes.go, then deliveries.go.
package catchup
