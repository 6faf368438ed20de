// Package catchup finds out what GitHub did not tell, or told in vain: webhooks that never arrived, and jobs that nobody was
// told about. It reads GitHub's list of deliveries, sweeps the queues of repositories, asks about jobs that have been waiting
// for long, and on request has jobs run again whose node died. What it learns goes to the ledger on the path that webhooks
// take (package intake), so the same tables decide and a tombstone bars the same late news.
//
// Every pass is bounded, goes on where the last one stopped, and spends no more than a stated share of what GitHub's
// rate-limit headers say is left (budget.go). A pass can be cut off anywhere. Begin with passes.go, then deliveries.go.
package catchup
