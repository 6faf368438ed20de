// Package ledgertest lets a test bring the ledger into a state that no caller of the store can produce, and read
// what no caller needs to see. Begin with Exec.
package ledgertest
