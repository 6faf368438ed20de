// Package intake takes one payload of GitHub's to the ledger: it decodes it, decides what is relevant, and records that in one transaction.
// Delivered payloads and those from GitHub's list of deliveries take this one path, so that nothing depends on how a payload came.
//
// Whether a payload is GitHub's is decided before: by its signature (NET-6), or because it was fetched from GitHub itself.
// Begin with intake.go.
package intake
